"""From a method, as a config names it, to the reducer that a trainer runs."""

from collections.abc import Callable

from compressors.core.codec import Codec
from compressors.core.compress import Compress
from compressors.core.reducer import Reducer, Wrapper
from compressors.core.transports import AllGather, AllReduce, Transport
from compressors.encoding.all_gather import EncodedAllGather
from compressors.encoding.settings import PLAIN, Wire
from compressors.feedback import no_feedback


def build_reducer(
    method: Codec | Reducer,
    num_parameters: int,
    feedback: Callable[[Reducer], Reducer] = no_feedback,
    wire: Wire = PLAIN,
) -> Reducer:
    """Wrap ``method`` for a model of D = ``num_parameters``.

    Feedback that has nothing to do, as error feedback of a lossless method, is left out with its memory.
    ``wire`` says how what is gathered is coded; raises ``ValueError`` where it does not fit the method.
    """
    if isinstance(method, Codec):
        method = method.for_model(num_parameters)
        reducer: Reducer = Compress(method, transport_of(method, wire))
    else:
        _require_plain(wire, method)
        reducer = method
    outer = feedback(reducer)
    return reducer if isinstance(outer, Wrapper) and outer.is_idle else outer


def transport_of(codec: Codec, wire: Wire = PLAIN) -> Transport:
    """A linear codec is averaged by an all-reduce, any other is gathered, coded as ``wire`` says."""
    if codec.traits.linear:
        _require_plain(wire, codec)
        return AllReduce()
    return EncodedAllGather(wire) if wire.is_coded else AllGather()


def _require_plain(wire: Wire, method: Codec | Reducer) -> None:
    name = type(method).__name__
    if wire.rounds:
        raise ValueError(
            f"wire.values must be fp32 with {name}, got {wire.values!r}: an all-reduce adds values "
            "up on their way, and nobody could feed back what rounding took from the sums"
        )
    if wire.is_coded:
        raise ValueError(
            f"wire.indices={wire.indices} has no effect with {name}: an all-reduce carries its values"
        )
