"""From a method, as a config names it, to the reducer that a trainer runs."""

from collections.abc import Callable
from typing import Any

from compressors.api import Reducer
from compressors.density import Constant
from compressors.feedback import no_feedback
from compressors.kernels.choice import require_choice
from compressors.means import mean_of
from compressors.reducers import MeasureInput
from compressors.scheduled import ScheduledMean
from compressors.wire import PLAIN, Wire


def build_reducer(
    method: Any,
    num_parameters: int,
    feedback: Callable[[Reducer], Reducer] = no_feedback,
    kernels: str = "auto",
    wire: Wire = PLAIN,
) -> Reducer:
    """Wrap ``method``, a codec, a reducer or the settings of one, for a model of D = ``num_parameters``.

    A linear codec is averaged by an all-reduce, any other is gathered; one whose density has a schedule
    follows the epoch. A lossless method leaves nothing behind, so it is spared the memory that ``feedback``
    would keep. What is compressed can be measured after the feedback and before the method: by reducers that
    can (``measures_input``), or around the others (``MeasureInput``). ``kernels`` is auto or reference; it
    changes no result. ``wire`` says how what is gathered is coded. Raises ``ValueError`` for other kernels,
    and for a wire that does not fit the method.
    """
    require_choice("kernels", kernels)
    if hasattr(method, "for_model"):
        method = method.for_model(num_parameters)
    wire.require_fit(method)
    reducer = _reducer_of(method, kernels, wire)
    if not getattr(reducer, "measures_input", False):
        reducer = MeasureInput(reducer, kernels)
    return reducer if getattr(method, "lossless", False) else feedback(reducer)


def _reducer_of(method: Any, kernels: str, wire: Wire) -> Reducer:
    if hasattr(method, "reduce"):
        return method
    if hasattr(method, "reducer"):
        return method.reducer(kernels, wire)
    schedule = getattr(method, "schedule", Constant())
    if isinstance(schedule, Constant):
        return mean_of(method, kernels, wire)
    return ScheduledMean(method, schedule, kernels, wire)
