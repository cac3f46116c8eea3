"""Operations timed alternately in rounds, and their ratios within a round.

Times are CPU times of the process and its threads, because other work on the machine affects wall time more.
Every round runs all operations in a new order, so a drift of the machine affects all equally.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence

Work = dict[str, Callable[[], object]]


def seconds_in_rounds(
    work: Work, rounds: int, prepare: Callable[[str], object] = lambda name: None
) -> dict[str, list[float]]:
    """CPU seconds of each operation in each round, without those of ``prepare(name)``, which runs before it.

    A first round, which compiles, is not counted.
    """
    shuffle = random.Random(0).shuffle
    found: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        order = list(work)
        shuffle(order)
        for name in order:
            prepare(name)
            started = time.process_time()
            work[name]()
            if number > 0:
                found[name].append(time.process_time() - started)
    return found


def median_ms(seconds: Sequence[float]) -> float:
    return 1000 * statistics.median(seconds)


def ratio(seconds: Sequence[float], others: Sequence[float]) -> float:
    """Median over rounds of the ratio within a round."""
    return statistics.median(map(float.__truediv__, seconds, others))
