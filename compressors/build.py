"""From a method, as a config names it, to the reducer that a trainer runs."""

from collections.abc import Callable
from typing import Any

from compressors.api import Reducer
from compressors.coded_gather import CodedGatherMean
from compressors.feedback import no_feedback
from compressors.kernels.choice import require_choice
from compressors.reducers import AllReduceMean, GatherMean, MeasureInput
from compressors.wire import Wire

PLAIN = Wire()


def build_reducer(
    method: Any,
    num_parameters: int,
    feedback: Callable[[Reducer], Reducer] = no_feedback,
    kernels: str = "auto",
    wire: Wire = PLAIN,
) -> Reducer:
    """Wrap ``method``, a codec or a reducer, for a model of D = ``num_parameters``.

    A linear codec is averaged by an all-reduce, any other is gathered. A lossless method leaves
    nothing behind, so it is spared the memory that ``feedback`` would keep. What is compressed can
    be measured (``MeasureInput``) after the feedback and before the method. ``kernels`` is auto or
    reference; it changes no result. ``wire`` says how what is gathered is coded. Raises ``ValueError`` for
    other kernels, and for a wire that does not fit the method.
    """
    require_choice("kernels", kernels)
    if hasattr(method, "for_model"):
        method = method.for_model(num_parameters)
    wire.require_fit(method)
    if hasattr(method, "reduce"):
        reducer = method
    elif method.linear:
        reducer = AllReduceMean(method, kernels)
    elif wire.is_coded:
        reducer = CodedGatherMean(method, wire, kernels)
    else:
        reducer = GatherMean(method, kernels)
    reducer = MeasureInput(reducer, kernels)
    return reducer if getattr(method, "lossless", False) else feedback(reducer)
