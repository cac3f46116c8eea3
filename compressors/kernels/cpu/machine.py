"""Instructions that NumPy lacks, from LLVM, for every processor."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 64  # entries that one mask covers


@intrinsic
def pointer(typing_context, address, like):
    """A pointer to entries of ``like``'s type at ``address``, for ``numba.carray``."""
    signature = types.CPointer(like)(types.int64, like)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


@intrinsic
def fused_multiply_add(typing_context, a, b, c):
    """a b + c, rounded once, as ``torch.add`` with an ``alpha`` does."""
    signature = c(c, c, c)

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return signature, generate


@intrinsic
def at_least(typing_context, array, start, threshold):
    """One bit for each of the 64 entries from ``start`` on: |x| >= threshold, or a NaN."""
    signature = types.uint64(array, start, threshold)
    bits = array.dtype.bitwidth

    def generate(context, builder, signature, arguments):
        entries = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = ir.VectorType(context.get_value_type(array.dtype), LANES)
        address = builder.bitcast(builder.gep(entries.data, [arguments[1]]), vector.as_pointer())
        x = builder.load(address, align=bits // 8)
        name, kind = f"llvm.fabs.v{LANES}f{bits}", ir.FunctionType(vector, [vector])
        magnitude = builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [x])
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        nothing = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(nothing, arguments[2], ir.Constant(ir.IntType(32), 0))
        limit = builder.shuffle_vector(first, nothing, zeros)
        return builder.bitcast(builder.fcmp_unordered(">=", magnitude, limit), ir.IntType(LANES))

    return signature, generate


@intrinsic
def sum_of_squares(typing_context, array, start):
    """The sum of squares of the 256 entries from ``start`` on, in the order of ``squared_norm``.

    The partial sums stay in registers. In a loop over them they would be stored after every line, because
    they could overlap with ``array``: it takes twice as long.
    """
    return types.float64(array, start), _sum_of_squares


@intrinsic
def copy_and_sum_of_squares(typing_context, array, start, target):
    """``sum_of_squares``, and a copy of the entries to the same places of ``target``."""
    return types.float64(array, start, target), _sum_of_squares


def _sum_of_squares(context, builder, signature, arguments):
    entries, *targets = (
        context.make_array(kind)(context, builder, argument).data
        for kind, argument in zip(signature.args[::2], arguments[::2], strict=True)
    )
    lanes, array = 32, signature.args[0]  # partial sums
    line = ir.VectorType(context.get_value_type(array.dtype), lanes)
    wide, total, alignment = ir.VectorType(ir.DoubleType(), lanes), None, array.dtype.bitwidth // 8
    for offset in range(0, 256, lanes):
        place = builder.add(arguments[1], ir.Constant(arguments[1].type, offset))
        x = builder.load(builder.bitcast(builder.gep(entries, [place]), line.as_pointer()), align=alignment)
        for target in targets:
            to = builder.bitcast(builder.gep(target, [place]), line.as_pointer())
            builder.store(x, to, align=alignment)
        x = x if line == wide else builder.fpext(x, wide)
        square = builder.fmul(x, x)
        total = square if total is None else builder.fadd(total, square)
    for half in (16, 8, 4, 2, 1):
        kind, nothing = ir.VectorType(ir.IntType(32), half), ir.Constant(total.type, ir.Undefined)
        parts = (ir.Constant(kind, list(range(first, first + half))) for first in (0, half))
        total = builder.fadd(*(builder.shuffle_vector(total, nothing, part) for part in parts))
    return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))


@intrinsic
def lowest_bit(typing_context, mask):
    """Position of the lowest set bit; ``mask`` must not be 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def num_set_bits(typing_context, mask):
    """Number of set bits."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def prefetch(typing_context, array, start, count):
    """Prefetch ``count`` entries, a constant, from ``start`` on, within the array."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    signature = types.void(array, start, count)
    line = 512 // array.dtype.bitwidth  # entries of 64 bytes

    def generate(context, builder, signature, arguments):
        entries = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        for offset in range(0, count.literal_value, line):
            place = builder.add(arguments[1], ir.Constant(arguments[1].type, offset))
            address = builder.bitcast(builder.gep(entries.data, [place]), byte)
            builder.call(call, [address, number(1), number(3), number(1)])
        return context.get_dummy_value()

    return signature, generate
