"""Triton kernels of quantisers: sums of parts, and rounding, packing and subtraction in one pass.

Rows are fp32 vectors; ``rows`` has ``ROW_COLUMNS`` numbers for each: its address, its size, the two keys of
its random bits, the first byte of its codes in ``packed`` for each width, and its first part. A part is a
layer, a column or a bucket of a row; ``parts`` has ``PART_COLUMNS`` numbers for each: its first entry, the
entry after its last one, the places of its one or two results in the row's field of scales, and the start of
that field. A program works on a piece of a part or on a tile of a row; ``tiles`` has the row, the number of
the tile in it, and its first and last part. Random numbers are a hash of the position in the row, so nothing
is copied from the host, and any order of programs draws the same. Sums have the order of ``squared_norm``.
"""

import triton
import triton.language as tl

from compressors.core.randomness import HASH_FACTORS
from compressors.kernels.gpu.blocks import add_halves

ROW_COLUMNS: tl.constexpr = tl.constexpr(9)
SIZE: tl.constexpr = tl.constexpr(1)
KEYS: tl.constexpr = tl.constexpr(2)
CODES: tl.constexpr = tl.constexpr(4)  # four columns, for parts of codes of 8, 4, 2 and 1 bits
FIRST_PART: tl.constexpr = tl.constexpr(8)
PART_COLUMNS: tl.constexpr = tl.constexpr(5)
PIECE_COLUMNS: tl.constexpr = tl.constexpr(5)
PIECE: tl.constexpr = tl.constexpr(4096)
LINES: tl.constexpr = tl.constexpr(256)  # of a tile; a line has 8 entries, or 5 of three values
ABSOLUTE: tl.constexpr = tl.constexpr(0)  # what ``sum_up`` adds
MOMENTS: tl.constexpr = tl.constexpr(1)
HIGHEST: tl.constexpr = tl.constexpr(2)
HALVES: tl.constexpr = tl.constexpr(3)
SQUARES: tl.constexpr = tl.constexpr(4)
_FIRST: tl.constexpr = tl.constexpr(int(HASH_FACTORS[0]))
_SECOND: tl.constexpr = tl.constexpr(int(HASH_FACTORS[1]))
_LARGEST: tl.constexpr = tl.constexpr(3.4028234663852886e38)  # float32
_MAGNITUDE: tl.constexpr = tl.constexpr(0x7FFFFFFF)
_INFINITE: tl.constexpr = tl.constexpr(0x7F800000)


@triton.jit
def hashed(place, row):
    """``random_bits`` at positions ``place`` of a row, uint32."""
    first = tl.load(row + KEYS).to(tl.uint32)
    second = tl.load(row + KEYS + 1).to(tl.uint32)
    word = place.to(tl.uint32) + first
    word = (word ^ (word >> 16)) * _FIRST
    word = ((word ^ (word >> 15)) ^ second) * _SECOND
    return word ^ (word >> 15)


@triton.jit
def uniform(place, row):
    """``uniform`` in float32 at positions ``place`` of a row."""
    return (hashed(place, row) >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08  # 2^-24


@triton.jit
def draw(rows, bits, TILE: tl.constexpr):
    """Write ``random_bits`` of one row's keys and size, as int32."""
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(bits + i, hashed(i, rows).to(tl.int32, bitcast=True), mask=i < tl.load(rows + SIZE))


@triton.jit
def sum_up(pieces, rows, sums, others, facts, KIND: tl.constexpr):
    """Sums of each block of a piece, and one number per part.

    ``ABSOLUTE``: |x|. ``MOMENTS``: x, and squares in ``others``; bits of the part's largest magnitude in
    ``facts``. ``HIGHEST``: these alone. ``HALVES``: entries >= 0, and the others in ``others``; number of
    entries >= 0 in ``facts``. ``SQUARES``: these. ``pieces`` has the row, the first entry, the size, the
    first block and the part.
    """
    piece = pieces + PIECE_COLUMNS * tl.program_id(0)
    size, first = tl.load(piece + 2).to(tl.int32), tl.load(piece + 3)
    x = tl.load(rows + ROW_COLUMNS * tl.load(piece)).to(tl.pointer_type(tl.float32)) + tl.load(piece + 1)
    blocks = tl.arange(0, PIECE // 256)
    lane = tl.arange(0, 32)[None, :]
    lanes = tl.zeros((PIECE // 256, 32), tl.float64)
    second = tl.zeros((PIECE // 256, 32), tl.float64)
    fact = tl.zeros((PIECE // 256, 32), tl.int32)
    for line in tl.static_range(8):
        i = blocks[:, None] * 256 + line * 32 + lane
        inside = i < size
        entries = tl.load(x + i, mask=inside, other=0.0)
        wide = entries.to(tl.float64)
        if KIND == ABSOLUTE:
            lanes += tl.abs(wide)
        if KIND == MOMENTS:
            lanes += wide
            second += wide * wide
        if KIND == SQUARES:
            lanes += wide * wide
        if KIND == MOMENTS or KIND == HIGHEST:  # noqa: SIM109 - Triton has no ``in``
            fact = tl.maximum(fact, entries.to(tl.int32, bitcast=True) & _MAGNITUDE)  # NaN is the largest
        if KIND == HALVES:
            positive = entries >= 0
            lanes += tl.where(positive, wide, 0.0)
            second += tl.where(positive, 0.0, wide)
            fact += (inside & positive).to(tl.int32)
    there = blocks * 256 < size
    if KIND != HIGHEST:
        tl.store(sums + first + blocks, add_halves(lanes), mask=there)
    if KIND == MOMENTS or KIND == HALVES:  # noqa: SIM109 - Triton has no ``in``
        tl.store(others + first + blocks, add_halves(second), mask=there)
    if KIND == MOMENTS or KIND == HIGHEST:  # noqa: SIM109 - Triton has no ``in``
        tl.atomic_max(facts + tl.load(piece + 4), tl.max(tl.max(fact, 1), 0), sem="relaxed")
    if KIND == HALVES:
        tl.atomic_add(facts + tl.load(piece + 4), tl.sum(tl.sum(fact, 1), 0), sem="relaxed")


@triton.jit
def scale_parts(parts, totals, facts, scales, clip, count, KIND: tl.constexpr, TILE: tl.constexpr):
    """The scale of each of ``count`` parts, float32: a mean, both means, a largest magnitude or an L2 norm.

    ``totals`` has the sums of all parts and then the second sums. With ``MOMENTS`` magnitudes are clipped to
    ``clip`` [1] standard deviations. Largest magnitudes and norms are at most the largest float32.
    """
    part = tl.program_id(0) * TILE + tl.arange(0, TILE)
    there = part < count
    own = parts + PART_COLUMNS * part
    size = tl.load(own + 1, mask=there, other=0) - tl.load(own, mask=there, other=0)
    wide = tl.maximum(size, 1).to(tl.float64)
    to = scales + tl.load(own + 4, mask=there, other=0)
    at, second = to + tl.load(own + 2, mask=there, other=0), to + tl.load(own + 3, mask=there, other=0)
    if KIND == ABSOLUTE:
        mean = tl.load(totals + part, mask=there, other=0.0) / wide
        tl.store(at, mean.to(tl.float32), mask=there)
    if KIND == HALVES:
        positive = tl.load(facts + part, mask=there, other=0).to(tl.int64)
        high = tl.load(totals + part, mask=there, other=0.0) / tl.maximum(positive, 1).to(tl.float64)
        low = tl.load(totals + count + part, mask=there, other=0.0)
        low = low / tl.maximum(size - positive, 1).to(tl.float64)
        tl.store(at, high.to(tl.float32), mask=there)
        tl.store(second, low.to(tl.float32), mask=there)
    if KIND == SQUARES:
        root = tl.sqrt(tl.load(totals + part, mask=there, other=0.0)).to(tl.float32)
        tl.store(at, tl.where(root > _LARGEST, _LARGEST, root), mask=there)
    if KIND == MOMENTS or KIND == HIGHEST:  # noqa: SIM109 - Triton has no ``in``
        top = tl.load(facts + part, mask=there, other=0).to(tl.float32, bitcast=True).to(tl.float64)
        if KIND == MOMENTS:
            mean = tl.load(totals + part, mask=there, other=0.0) / wide
            squares = tl.load(totals + count + part, mask=there, other=0.0) / wide
            variance = squares - mean * mean
            clipped = tl.load(clip) * tl.sqrt(variance)
            clipped = tl.where(top < clipped, top, clipped)
            top = tl.where(variance > 1e-12 * squares, clipped, top)  # false for equal entries
        tl.store(at, tl.where(top > _LARGEST, _LARGEST, top).to(tl.float32), mask=there)


@triton.jit
def scale_of(i, tiles, parts, scales, SECOND: tl.constexpr):
    """The scale, or the second one, of the part of each entry ``i`` of a tile, from the row's ``scales``."""
    tile = tiles + 4 * tl.program_id(0)
    scale = tl.zeros(i.shape, tl.float32)
    for part in range(tl.load(tile + 2), tl.load(tile + 3) + 1):
        own = parts + PART_COLUMNS * part
        inside = (i >= tl.load(own)) & (i < tl.load(own + 1))
        scale = tl.where(inside, tl.load(scales + tl.load(own + 2 + SECOND)), scale)
    return scale


@triton.jit
def own_scales(tiles, parts, scales):
    """The start of a tile's row in the joined ``scales``."""
    return scales + tl.load(parts + PART_COLUMNS * tl.load(tiles + 4 * tl.program_id(0) + 2) + 4)


@triton.jit
def store_codes(codes, row, tile, packed, size, WIDTH: tl.constexpr, COLUMN: tl.constexpr):
    """Pack the lowest ``WIDTH`` bits of each of a tile's ``codes`` [LINES, 8] into the row's bytes."""
    each: tl.constexpr = 8 // WIDTH
    own = tl.reshape(codes & ((1 << WIDTH) - 1), (LINES * WIDTH, each))
    word = tl.sum(own << (WIDTH * tl.arange(0, each))[None, :], 1)
    byte = tile * (LINES * WIDTH) + tl.arange(0, LINES * WIDTH)
    at = packed + tl.load(row + CODES + COLUMN) + byte
    tl.store(at, word.to(tl.uint8), mask=byte * each < size)


@triton.jit
def tile_of(tiles, rows, EACH: tl.constexpr):
    """The row of a program's tile, the tile's number in it, its positions [LINES, 8], and a mask."""
    own = tiles + 4 * tl.program_id(0)
    row = rows + ROW_COLUMNS * tl.load(own)
    tile = tl.load(own + 1).to(tl.int32)
    column = tl.arange(0, 8)[None, :]
    i = tile * (LINES * EACH) + tl.arange(0, LINES)[:, None] * EACH + column
    return row, tile, i, (i < tl.load(row + SIZE)) & (column < EACH)


@triton.jit
def round_to_signs(tiles, rows, parts, scales, packed, TWO: tl.constexpr):
    """Write code 1 for entries >= 0, else 0; subtract the part's scale or, with ``TWO``, one of its means."""
    row, tile, i, inside = tile_of(tiles, rows, 8)
    x = tl.load(row).to(tl.pointer_type(tl.float32)) + i
    entries = tl.load(x, mask=inside, other=-1.0)
    own = own_scales(tiles, parts, scales)
    high = scale_of(i, tiles, parts, own, 0)
    low = scale_of(i, tiles, parts, own, 1) if TWO else -high
    positive = entries >= 0
    tl.store(x, entries - tl.where(positive, high, low), mask=inside)
    store_codes(positive.to(tl.int32), row, tile, packed, tl.load(row + SIZE), 1, 3)


@triton.jit
def round_to_ternary(tiles, rows, parts, scales, packed, EACH: tl.constexpr):
    row, tile, i, inside = tile_of(tiles, rows, EACH)
    x = tl.load(row).to(tl.pointer_type(tl.float32)) + i
    entries = tl.load(x, mask=inside, other=0.0)
    scale = scale_of(i, tiles, parts, own_scales(tiles, parts, scales), 0)
    sent = inside & (uniform(i, row) * scale < tl.abs(entries))
    sign = tl.where(sent, tl.where(entries > 0, 1.0, -1.0), 0.0)
    tl.store(x, entries - sign * scale, mask=inside)
    codes = tl.where(sent, tl.where(entries > 0, 1, 2), 0)
    if EACH == 8:
        store_codes(codes, row, tile, packed, tl.load(row + SIZE), 2, 2)
    else:
        power = tl.arange(0, 8)[None, :]
        power = tl.where(power < 2, 1 + 2 * power, tl.where(power == 2, 9, tl.where(power == 3, 27, 81)))
        byte = tile * LINES + tl.arange(0, LINES)
        at = packed + tl.load(row + CODES) + byte
        word = tl.sum(codes * power, 1)  # codes of entries that are not inside are 0
        tl.store(at, word.to(tl.uint8), mask=byte * EACH < tl.load(row + SIZE))


@triton.jit
def round_to_powers(tiles, rows, packed):
    row, tile, i, inside = tile_of(tiles, rows, 8)
    x = tl.load(row).to(tl.pointer_type(tl.float32)) + i
    entries = tl.load(x, mask=inside, other=0.0)
    bits = entries.to(tl.int32, bitcast=True)
    magnitude = tl.minimum(bits & _MAGNITUDE, _INFINITE)
    drawn = (hashed(i, row) >> 9).to(tl.int32)
    exponent = (magnitude + drawn) >> 23
    exponent = tl.where(magnitude == _INFINITE, exponent, tl.minimum(exponent, 254))
    sent = (exponent << 23) | (bits & -2147483648)
    value = sent.to(tl.float32, bitcast=True) + 0.0  # -0 is subtracted as 0
    tl.store(x, entries - value, mask=inside)
    store_codes(exponent, row, tile, packed, tl.load(row + SIZE), 8, 0)
    store_codes((bits < 0).to(tl.int32), row, tile, packed, tl.load(row + SIZE), 1, 3)


@triton.jit
def round_to_levels(tiles, rows, norms, packed, bucket_size, number, BITS: tl.constexpr):
    """A row's parts are its buckets; ``norms`` has those of all rows."""
    row, tile, i, inside = tile_of(tiles, rows, 8)
    size = tl.load(row + SIZE)
    bucket = tl.load(row + FIRST_PART) + i // bucket_size
    x = tl.load(row).to(tl.pointer_type(tl.float32)) + i
    entries = tl.load(x, mask=inside, other=0.0)
    norm = tl.load(norms + bucket, mask=inside, other=1.0)
    levels = tl.full((), number, tl.float32)
    share = tl.div_rn(tl.abs(entries), tl.where(norm > 0, norm, 1.0)) * levels
    level = tl.minimum((share + uniform(i, row)).to(tl.int32), number)
    negative = (entries < 0).to(tl.int32)
    value = level.to(tl.float32) * (1 - 2 * negative).to(tl.float32) * tl.div_rn(norm, levels)
    tl.store(x, entries - (value + 0.0), mask=inside)  # -0 is subtracted as 0
    codes = (level << 1) | negative
    if BITS & 8:
        store_codes(codes, row, tile, packed, size, 8, 0)
    if BITS & 4:
        store_codes(codes >> (BITS & 8), row, tile, packed, size, 4, 1)
    if BITS & 2:
        store_codes(codes >> (BITS & 12), row, tile, packed, size, 2, 2)
    if BITS & 1:
        store_codes(codes >> (BITS & 14), row, tile, packed, size, 1, 3)


@triton.jit
def code_at(field, i, inside, WIDTH: tl.constexpr):
    """The codes of ``WIDTH`` bits at positions ``i`` of a packed field, by its address."""
    each: tl.constexpr = 8 // WIDTH
    byte = tl.load(field.to(tl.pointer_type(tl.uint8)) + i // each, mask=inside, other=0).to(tl.int32)
    return (byte >> (WIDTH * (i % each)).to(tl.int32)) & ((1 << WIDTH) - 1)


@triton.jit
def add_signs(tiles, rows, parts, fields, workers, TWO: tl.constexpr):
    """Add the payloads of all workers, in order, to each row.

    ``fields`` has, for each row and worker, the addresses of its two fields.
    """
    row, _, i, inside = tile_of(tiles, rows, 8)
    out = tl.load(row).to(tl.pointer_type(tl.float32)) + i
    total = tl.load(out, mask=inside, other=0.0)
    field = fields + 2 * workers * tl.load(tiles + 4 * tl.program_id(0))
    for _ in range(workers):
        scales = tl.load(field + 1).to(tl.pointer_type(tl.float32))
        high = scale_of(i, tiles, parts, scales, 0)
        low = scale_of(i, tiles, parts, scales, 1) if TWO else -high
        total += tl.where(code_at(tl.load(field), i, inside, 1) != 0, high, low)
        field += 2
    tl.store(out, total, mask=inside)


@triton.jit
def add_ternary(tiles, rows, parts, fields, workers, EACH: tl.constexpr):
    row, _, i, inside = tile_of(tiles, rows, EACH)
    out = tl.load(row).to(tl.pointer_type(tl.float32)) + i
    total = tl.load(out, mask=inside, other=0.0)
    field = fields + 2 * workers * tl.load(tiles + 4 * tl.program_id(0))
    power = tl.arange(0, 8)[None, :]
    power = tl.where(power < 2, 1 + 2 * power, tl.where(power == 2, 9, tl.where(power == 3, 27, 81)))
    for _ in range(workers):
        scales = tl.load(field + 1).to(tl.pointer_type(tl.float32))
        scale = scale_of(i, tiles, parts, scales, 0)
        if EACH == 8:
            code = code_at(tl.load(field), i, inside, 2)
        else:
            codes = tl.load(field).to(tl.pointer_type(tl.uint8))
            code = tl.load(codes + i // EACH, mask=inside, other=0).to(tl.int32) // power % 3
        total += ((code & 1) - (code >> 1)).to(tl.float32) * scale
        field += 2
    tl.store(out, total, mask=inside)


@triton.jit
def add_powers(tiles, rows, fields, workers):
    row, _, i, inside = tile_of(tiles, rows, 8)
    out = tl.load(row).to(tl.pointer_type(tl.float32)) + i
    total = tl.load(out, mask=inside, other=0.0)
    field = fields + 2 * workers * tl.load(tiles + 4 * tl.program_id(0))
    for _ in range(workers):
        exponent, sign = code_at(tl.load(field), i, inside, 8), code_at(tl.load(field + 1), i, inside, 1)
        total += ((exponent << 23) | (sign << 31)).to(tl.float32, bitcast=True)
        field += 2
    tl.store(out, total, mask=inside)


@triton.jit
def add_levels(tiles, rows, fields, workers, bucket_size, number, BITS: tl.constexpr, FIELDS: tl.constexpr):
    """The last of the ``FIELDS`` fields has the norms, the others the parts of the codes."""
    row, _, i, inside = tile_of(tiles, rows, 8)
    out = tl.load(row).to(tl.pointer_type(tl.float32)) + i
    total = tl.load(out, mask=inside, other=0.0)
    field = fields + FIELDS * workers * tl.load(tiles + 4 * tl.program_id(0))
    levels = tl.full((), number, tl.float32)
    for _ in range(workers):
        norms = tl.load(field + FIELDS - 1).to(tl.pointer_type(tl.float32))
        norm = tl.load(norms + i // bucket_size, mask=inside, other=0.0)
        code = tl.zeros(i.shape, tl.int32)
        at = field
        if BITS & 8:
            code |= code_at(tl.load(at), i, inside, 8)
            at += 1
        if BITS & 4:
            code |= code_at(tl.load(at), i, inside, 4) << (BITS & 8)
            at += 1
        if BITS & 2:
            code |= code_at(tl.load(at), i, inside, 2) << (BITS & 12)
            at += 1
        if BITS & 1:
            code |= code_at(tl.load(at), i, inside, 1) << (BITS & 14)
        sign = (1 - 2 * (code & 1)).to(tl.float32)
        total += (code >> 1).to(tl.float32) * sign * tl.div_rn(norm, levels)
        field += FIELDS
    tl.store(out, total, mask=inside)
