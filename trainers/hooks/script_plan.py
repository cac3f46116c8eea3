"""The plan of a training in a user's own script, with which a method's settings are checked."""

from compressors.api import Plan, Reducer
from compressors.build import plan_of

NUM_EPOCHS = 10_000  # a script does not say how long it trains; no schedule is too long for this


def script_plan(reducer: Reducer) -> Plan:
    """A plan under which no method is refused for the optimizer, the learning rates or the length.

    These are known to the script alone.
    """
    rates = (1.0,) * NUM_EPOCHS
    return plan_of(reducer, scope="layer", optimizer="SGD", momentum=0.0, rates=rates, lowest_rate=1.0)
