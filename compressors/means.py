"""Which reducer a codec gets."""

from compressors.api import Codec, Reducer
from compressors.coded_gather import CodedGatherMean
from compressors.reducers import AllReduceMean, GatherMean
from compressors.wire import PLAIN, Wire


def mean_of(codec: Codec, kernels: str = "auto", wire: Wire = PLAIN) -> Reducer:
    """A linear codec is averaged by an all-reduce, any other is gathered, coded as ``wire`` says."""
    if codec.linear:
        return AllReduceMean(codec, kernels)
    return CodedGatherMean(codec, wire, kernels) if wire.is_coded else GatherMean(codec, kernels)
