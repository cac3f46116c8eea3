"""Compiled loops of quantisers: sums of layers, and rounding, packing and subtraction in one pass.

Each loop has the bits of a codec's ``encode`` or ``add``. Codes of a chunk of entries stay in cache. Sums
have the order of ``squared_norm``.
"""

import numpy as np
from numba import njit

from compressors.core.randomness import HASH_FACTORS
from compressors.kernels.cpu.codes import pack, unpack
from compressors.kernels.cpu.compiling import compiled

CHUNK = 7680  # entries: a multiple of 64 and of 5
_BLOCK, _LANES = 256, 32
_FIRST_FACTOR, _SECOND_FACTOR = HASH_FACTORS
_UNIT, _LARGEST = np.float32(2**-24), np.finfo(np.float32).max
_MAGNITUDE, _INFINITE, _SIGN = np.int32(0x7FFFFFFF), np.int32(0x7F800000), np.int32(-(2**31))


@njit(inline="always")
def hashed(place, first, second):
    """``random_bits`` of a place."""
    word = np.uint32(np.uint32(place) + first)
    word = np.uint32(np.uint32(word ^ (word >> np.uint32(16))) * _FIRST_FACTOR)
    word = np.uint32(np.uint32(np.uint32(word ^ (word >> np.uint32(15))) ^ second) * _SECOND_FACTOR)
    return np.uint32(word ^ (word >> np.uint32(15)))


@compiled
def draw(words, first, second):
    """Fill ``words`` [d] uint32 with ``random_bits``."""
    for place in range(len(words)):
        words[place] = hashed(place, first, second)


@njit(inline="always")
def uniform(place, first, second):
    """``uniform`` in float32 at a place."""
    return np.float32(np.int32(hashed(place, first, second) >> np.uint32(8))) * _UNIT


@njit(inline="always")
def add_halves(sums, count):
    """The sum of ``sums[:count]``, which are consumed."""
    if count == 0:
        return 0.0
    while count > 1:
        half = (count + 1) // 2
        for i in range(count - half):
            sums[i] += sums[half + i]
        count = half
    return sums[0]


@njit(inline="always")
def block_at(x, start, stop, block):
    """A block of ``x`` from ``start`` on; the last one is padded with zeros in ``block``."""
    if start + _BLOCK <= stop:
        return x[start : start + _BLOCK]
    block[: stop - start] = x[start:stop]
    block[stop - start :] = 0
    return block


@njit(inline="always")
def largest_bits(entries):
    """The largest magnitude, as bits of float32; NaN counts as larger than any number."""
    bits, top = entries.view(np.int32), np.int32(0)
    for i in range(len(bits)):
        top = max(top, bits[i] & _MAGNITUDE)
    return top


@compiled
def magnitude_sums(x, edges, totals):
    """The sum of |x| of every layer, [L]."""
    sums, lanes, block = np.empty(len(x) // _BLOCK + 1), np.empty(_LANES), np.zeros(_BLOCK, np.float32)
    for layer in range(len(edges) - 1):
        count = 0
        for start in range(edges[layer], edges[layer + 1], _BLOCK):
            entries = block_at(x, start, edges[layer + 1], block)
            for lane in range(_LANES):
                lanes[lane] = 0.0
            for line in range(_BLOCK // _LANES):
                for lane in range(_LANES):
                    lanes[lane] += abs(np.float64(entries[line * _LANES + lane]))
            sums[count] = add_halves(lanes, _LANES)
            count += 1
        totals[layer] = add_halves(sums, count)


@compiled
def moments(x, edges, sums_too, totals):
    """The largest magnitude of every layer and, with ``sums_too``, the sums of x and of squares, [3, L]."""
    sums, squares = np.empty((2, len(x) // _BLOCK + 1)), np.empty(_LANES)
    lanes, block, top = np.empty(_LANES), np.zeros(_BLOCK, np.float32), np.zeros(1, np.int32)
    for layer in range(len(edges) - 1):
        count, top[0] = 0, 0
        for start in range(edges[layer], edges[layer + 1], _BLOCK):
            entries = block_at(x, start, edges[layer + 1], block)
            top[0] = max(top[0], largest_bits(entries))
            if sums_too:
                for lane in range(_LANES):
                    lanes[lane] = squares[lane] = 0.0
                for line in range(_BLOCK // _LANES):
                    for lane in range(_LANES):
                        wide = np.float64(entries[line * _LANES + lane])
                        lanes[lane] += wide
                        squares[lane] += wide * wide
                sums[0, count], sums[1, count] = add_halves(lanes, _LANES), add_halves(squares, _LANES)
                count += 1
        totals[0, layer] = top.view(np.float32)[0]
        if sums_too:
            totals[1, layer], totals[2, layer] = add_halves(sums[0], count), add_halves(sums[1], count)


@compiled
def sums_of_halves(x, edges, totals, positive):
    """Per part the sums of the entries >= 0 and of the others, [2, P], and the number of entries >= 0."""
    sums, lows = np.empty((2, len(x) // _BLOCK + 1)), np.empty(_LANES)
    lanes, block = np.empty(_LANES), np.zeros(_BLOCK, np.float32)
    for part in range(len(edges) - 1):
        count = num_positive = 0
        for start in range(edges[part], edges[part + 1], _BLOCK):
            entries = block_at(x, start, edges[part + 1], block)
            for lane in range(_LANES):
                lanes[lane] = lows[lane] = 0.0
            for line in range(_BLOCK // _LANES):
                for lane in range(_LANES):
                    entry = np.float64(entries[line * _LANES + lane])
                    lanes[lane] += entry if entry >= 0 else 0.0
                    lows[lane] += 0.0 if entry >= 0 else entry
            for i in range(min(_BLOCK, edges[part + 1] - start)):
                num_positive += entries[i] >= 0
            sums[0, count], sums[1, count] = add_halves(lanes, _LANES), add_halves(lows, _LANES)
            count += 1
        totals[0, part], totals[1, part] = add_halves(sums[0], count), add_halves(sums[1], count)
        positive[part] = num_positive


@compiled
def round_to_signs(x, edges, high, low, packed):
    """Write code 1 for entries >= 0, else 0; subtract ``high`` or ``low`` of their part from the entries."""
    codes, layer = np.empty(CHUNK, np.uint8), 0
    for base in range(0, len(x), CHUNK):
        stop = min(base + CHUNK, len(x))
        at = base
        while at < stop:
            while edges[layer + 1] <= at:
                layer += 1
            until = min(stop, edges[layer + 1])
            own, found, above, below = x[at:until], codes[at - base : until - base], high[layer], low[layer]
            for i in range(len(own)):
                positive = own[i] >= 0
                found[i] = positive
                own[i] -= above if positive else below
            at = until
        pack(codes, stop - base, 1, packed[base // 8 :])


@compiled
def add_signs(packed, edges, high, low, out):
    codes, layer = np.empty(CHUNK, np.uint8), 0
    for base in range(0, len(out), CHUNK):
        stop = min(base + CHUNK, len(out))
        unpack(packed[base // 8 :], stop - base, 1, codes)
        at = base
        while at < stop:
            while edges[layer + 1] <= at:
                layer += 1
            until = min(stop, edges[layer + 1])
            own, found, above, below = out[at:until], codes[at - base : until - base], high[layer], low[layer]
            for i in range(len(own)):
                own[i] += above if found[i] else below
            at = until


@compiled
def round_to_ternary(x, edges, scales, first, second, kind, packed):
    """Each loop has numbers of one width, for vector instructions; a single loop takes twice the time."""
    codes, layer = np.empty(CHUNK + 8, np.uint8), 0
    each, drawn = 5 if kind == 3 else 4, np.empty(CHUNK, np.float32)
    for base in range(0, len(x), CHUNK):
        stop = min(base + CHUNK, len(x))
        at = base
        while at < stop:
            while edges[layer + 1] <= at:
                layer += 1
            until = min(stop, edges[layer + 1])
            own, found, scale = x[at:until], codes[at - base : until - base], scales[layer]
            for i in range(len(own)):
                drawn[i] = uniform(at + i, first, second) * scale
            for i in range(len(own)):
                sign = np.float32(1) if own[i] > 0 else np.float32(-1)
                drawn[i] = sign if drawn[i] < abs(own[i]) else np.float32(0)
            for i in range(len(own)):
                own[i] -= drawn[i] * scale
            for i in range(len(own)):
                value = np.int32(drawn[i])
                found[i] = np.uint8((value & np.int32(1)) + (np.int32(value >> np.int32(1)) & np.int32(1)))
            at = until
        pack(codes, stop - base, kind, packed[base // each :])


@compiled
def add_ternary(packed, edges, scales, kind, out):
    codes, layer = np.empty(CHUNK + 8, np.uint8), 0
    each = 5 if kind == 3 else 4
    for base in range(0, len(out), CHUNK):
        stop = min(base + CHUNK, len(out))
        unpack(packed[base // each :], stop - base, kind, codes)
        at = base
        while at < stop:
            while edges[layer + 1] <= at:
                layer += 1
            until = min(stop, edges[layer + 1])
            own, found, scale = out[at:until], codes[at - base : until - base], scales[layer]
            for i in range(len(own)):
                code = np.int32(found[i])
                own[i] += np.float32((code & 1) - (code >> 1)) * scale
            at = until


@compiled
def round_to_powers(x, first, second, exponents, packed):
    codes, sent = np.empty(CHUNK, np.uint8), np.empty(CHUNK, np.int32)
    values, nothing = sent.view(np.float32), np.float32(0)
    for base in range(0, len(x), CHUNK):
        own = x[base : base + CHUNK]
        bits, powers = own.view(np.int32), exponents[base : base + CHUNK]
        for i in range(len(own)):
            magnitude = min(bits[i] & _MAGNITUDE, _INFINITE)
            drawn = np.int32(hashed(base + i, first, second) >> np.uint32(9))
            exponent = np.int32(np.int32(magnitude + drawn) >> np.int32(23))
            exponent = exponent if magnitude == _INFINITE else min(exponent, np.int32(254))
            powers[i] = np.uint8(exponent)
            codes[i] = bits[i] < 0
            sent[i] = np.int32(exponent << np.int32(23)) | (bits[i] & _SIGN)
        for i in range(len(own)):
            own[i] -= values[i] + nothing  # -0 is subtracted as 0
        pack(codes, len(own), 1, packed[base // 8 :])


@compiled
def add_powers(exponents, packed, out):
    codes, found = np.empty(CHUNK, np.uint8), np.empty(CHUNK, np.int32)
    values = found.view(np.float32)
    for base in range(0, len(out), CHUNK):
        own = out[base : base + CHUNK]
        unpack(packed[base // 8 :], len(own), 1, codes)
        powers = exponents[base : base + CHUNK]
        for i in range(len(own)):
            found[i] = np.int32(np.int32(powers[i]) << np.int32(23)) | np.int32(
                np.int32(codes[i]) << np.int32(31)
            )
        for i in range(len(own)):
            own[i] += values[i]


@compiled
def norm_of(own, is_largest, sums, lanes, block):
    """The largest magnitude or the L2 norm of a bucket, at most the largest float32."""
    if is_largest:
        block.view(np.int32)[0] = largest_bits(own)
        norm = block[0]
    else:
        count = 0
        for start in range(0, len(own), _BLOCK):
            entries = block_at(own, start, len(own), block)
            for lane in range(_LANES):
                lanes[lane] = 0.0
            for line in range(_BLOCK // _LANES):
                for lane in range(_LANES):
                    wide = np.float64(entries[line * _LANES + lane])
                    lanes[lane] += wide * wide
            sums[count] = add_halves(lanes, _LANES)
            count += 1
        norm = np.float32(np.sqrt(add_halves(sums, count)))
    return _LARGEST if norm > _LARGEST else norm


@compiled
def round_to_levels(x, number, bucket_size, is_largest, first, second, norms, widths, starts, packed):
    """``starts`` are the first bytes, in ``packed``, of the codes' parts, which have ``widths`` bits."""
    chunk = bucket_size * max(1, CHUNK // bucket_size)
    codes, part = np.empty(chunk, np.uint16), np.empty(chunk + 8, np.uint8)
    sums, lanes, block = np.empty(bucket_size // _BLOCK + 1), np.empty(_LANES), np.zeros(_BLOCK, np.float32)
    levels, most = np.float32(number), np.int32(number)
    for begin in range(0, len(x), chunk):
        end = min(begin + chunk, len(x))
        for base in range(begin, end, bucket_size):
            own, found = x[base : min(base + bucket_size, end)], codes[base - begin :]
            norm = norm_of(own, is_largest, sums, lanes, block)
            norms[base // bucket_size] = norm
            divisor = norm if norm > 0 else np.float32(1)
            scale = norm / levels
            for i in range(len(own)):
                share = np.float32(abs(own[i]) / divisor) * levels
                level = min(np.int32(share + uniform(base + i, first, second)), most)
                negative = np.int32(own[i] < 0)
                found[i] = np.uint16(np.int32(level << np.int32(1)) | negative)
                value = np.float32(level) * np.float32(np.int32(1) - np.int32(2) * negative) * scale
                own[i] -= value + np.float32(0)  # -0 is subtracted as 0
        shift = np.uint16(0)
        for number_of_part in range(len(widths)):
            width = widths[number_of_part]
            mask = np.uint16((1 << width) - 1)
            for i in range(end - begin):
                part[i] = np.uint8((codes[i] >> shift) & mask)
            to = starts[number_of_part] + begin * width // 8
            pack(part, end - begin, width, packed[to:])
            shift += np.uint16(width)


@compiled
def add_levels(packed, number, bucket_size, norms, widths, starts, out):
    chunk = bucket_size * max(1, CHUNK // bucket_size)
    codes, part = np.empty(chunk, np.uint16), np.empty(chunk + 8, np.uint8)
    levels = np.float32(number)
    for begin in range(0, len(out), chunk):
        end = min(begin + chunk, len(out))
        shift = np.uint16(0)
        codes[:] = 0
        for number_of_part in range(len(widths)):
            width = widths[number_of_part]
            unpack(packed[starts[number_of_part] + begin * width // 8 :], end - begin, width, part)
            for i in range(end - begin):
                codes[i] |= np.uint16(np.uint16(part[i]) << shift)
            shift += np.uint16(width)
        for base in range(begin, end, bucket_size):
            own, found = out[base : min(base + bucket_size, end)], codes[base - begin :]
            scale = norms[base // bucket_size] / levels
            for i in range(len(own)):
                code = np.int32(found[i])
                sign = np.float32(np.int32(1) - np.int32(2) * (code & np.int32(1)))
                own[i] += np.float32(code >> np.int32(1)) * sign * scale
