"""What is known of a training in your own script, for the checks of methods."""

from compressors.api import Plan, Reducer
from compressors.build import plan_of

NUM_EPOCHS = 10_000  # a script does not say how long it trains; no schedule is too long for this


def script_plan(reducer: Reducer) -> Plan:
    """A plan that refuses nothing for optimizer, learning rates or length, which a script alone knows."""
    rates = (1.0,) * NUM_EPOCHS
    return plan_of(reducer, scope="layer", optimizer="SGD", momentum=0.0, rates=rates, lowest_rate=1.0)
