"""Construction of the trainer's reducer from a method."""

from collections.abc import Callable, Sequence

from compressors.core.codec import Codec, Plan
from compressors.core.compress import Compress
from compressors.core.reducer import Reducer, Wrapper
from compressors.core.transports import AllGather, AllReduce, SenderMean, Transport
from compressors.encoding.all_gather import EncodedAllGather
from compressors.encoding.settings import PLAIN, Encoding
from compressors.feedback import no_feedback
from compressors.hard_threshold import HardThreshold
from compressors.none import NoCompression
from compressors.strom import Strom


def build_reducer(
    method: Codec | Reducer,
    num_parameters: int,
    feedback: Callable[[Reducer], Reducer] = no_feedback,
    encoding: Encoding = PLAIN,
) -> Reducer:
    """The reducer of ``method`` for a model of D = ``num_parameters``.

    Feedback without effect, such as error feedback of a lossless method, is omitted, together with its
    memory. ``encoding`` applies to gathered payloads. Raises ``ValueError`` if it does not fit the method, or
    if ``method`` is neither a codec nor a reducer.
    """
    if isinstance(method, Codec):
        method = method.for_model(num_parameters)
        reducer: Reducer = Compress(method, transport_of(method, encoding))
    elif isinstance(method, Reducer):
        _require_plain(encoding, method)
        reducer = method
    else:
        raise ValueError(f"a compressor must extend Codec or Reducer, got {type(method).__name__}")
    if not callable(feedback):
        raise ValueError(f"feedback must be a class such as ErrorFeedback, got {feedback!r}")
    outer = feedback(reducer)
    return reducer if isinstance(outer, Wrapper) and outer.is_idle else outer


def plan_of(
    reducer: Reducer,
    *,
    scope: str,
    optimizer: str,
    momentum: float,
    rates: Sequence[float],
    lowest_rate: float,
) -> Plan:
    """The plan of a training with ``reducer`` and its wrappers; the other fields are those of ``Plan``."""
    wrappers = [outer for outer in reducer.layers() if isinstance(outer, Wrapper)]
    feedback = ", ".join(type(outer).__name__ for outer in wrappers)
    grows = any(outer.needs_contraction for outer in wrappers)
    return Plan(scope, feedback, optimizer, momentum, rates, lowest_rate, needs_contraction=grows)


def threshold_in_force(reducer: Reducer) -> float | None:
    """The constant threshold of a reducer's codec, given or by the paper's rule; None if it has none."""
    inner = reducer.innermost
    codec = inner.codec if isinstance(inner, Compress) else None
    return codec.threshold if isinstance(codec, (HardThreshold, Strom)) else None


def transport_of(codec: Codec, encoding: Encoding = PLAIN) -> Transport:
    """An all-reduce for a linear codec; an all-gather with ``encoding`` for any other."""
    if codec.traits.linear:
        _require_plain(encoding, codec)
        return AllReduce()
    if codec.traits.of_senders:
        if encoding.is_coded:
            name = type(codec).__name__
            raise ValueError(
                f"wire must be plain with {name}: its mean is over the workers that sent a value"
            )
        return SenderMean()
    return EncodedAllGather(encoding) if encoding.is_coded else AllGather()


def _require_plain(encoding: Encoding, method: Codec | Reducer) -> None:
    name = type(method).__name__
    if isinstance(method, Codec | NoCompression):
        rounding = (
            "an all-reduce adds values in transfer, and no residual has the rounding errors of the sums"
        )
        coding = "its values are sent by an all-reduce, which has no encoded messages"
    else:
        rounding = coding = "it has collectives of its own, without encoded messages"
    if encoding.rounds:
        raise ValueError(f"wire.values must be fp32 with {name}, got {encoding.values!r}: {rounding}")
    if encoding.is_coded:
        raise ValueError(f"wire.indices={encoding.indices} has no effect with {name}: {coding}")
