"""The trainings of a method at a budget: pilots, learning rates, and the runs that are compared.

A pilot is a training with the tuning seed; the bytes that it sends set the method's knob.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from results.compare.knobs import TOLERANCE, UnreachableError, without_knob
from results.studies.league.methods import Entry, entries_of
from results.studies.league.tasks import BASELINE, RATE_STEP, SHARES, TASKS, TUNING_SEED, rounded
from results.studies.league.trials import Outcome, TrainingError, Trainings, Trial


def train_methods(
    tasks: Sequence[str], names: Sequence[str], train: Trainings, jobs: int, knob: str | None = None
) -> None:
    """Train the baseline and then the methods ``names`` on ``tasks``, ``jobs`` methods at a time.

    ``knob`` replaces their knobs. Finished trainings are not repeated. Methods that a task excludes are not
    trained on it. Raises ``ValueError`` for another method that run.py refuses, after the trainings of the
    other methods.
    """
    tasks, names = list(dict.fromkeys(tasks)), list(dict.fromkeys(names))
    others = entries_of([name for name in names if name != BASELINE], knob)
    if fixed := [entry.name for entry in others if entry.knob is None]:
        train.report(f"{without_knob(fixed)}: one setting is trained, for all budgets that its bytes meet")
    with ThreadPoolExecutor(jobs) as pool:
        dense = dict(zip(tasks, pool.map(lambda task: _baseline(task, train), tasks), strict=True))
        trainings = {
            pool.submit(train_method, task, entry, dense[task], train): f"{task} {entry.name}"
            for task in tasks
            for entry in others
            if entry.name not in TASKS[task].excluded
        }
        refusals = []
        try:
            for one in as_completed(trainings):
                try:
                    one.result()
                except ValueError as error:
                    refusals.append(f"{trainings[one]}: {error}")
                    train.report(refusals[-1])
        finally:
            for one in trainings:
                one.cancel()
    if refusals:
        raise ValueError(refusals[0])


def _baseline(task: str, train: Trainings) -> Outcome:
    """Dense training, at a rate that is tuned as for all methods; the outcome of its first compared seed.

    Raises ``ValueError`` if it fails at every rate.
    """
    entry = Entry(BASELINE, (f"compressor={BASELINE}",), None)
    outcomes = tune_and_compare(task, entry, train)
    if not outcomes:
        raise ValueError(f"dense training fails on {task} at every rate")
    return outcomes[0]


def train_method(task: str, entry: Entry, dense: Outcome, train: Trainings) -> None:
    """Train a method on a task at all budgets, from the largest budget to the smallest.

    A method whose knob gets no direction, since its pilots diverge at the lowest rate too, is not trained.
    """
    if entry.knob is None:
        train_without_knob(task, entry, dense, train)
        return
    low = TASKS[task].rates(entry.name)[0]
    try:
        try:
            knob = entry.knob.directed(pilots(task, entry, SHARES[0], train))
        except TrainingError:  # the training diverges
            knob = entry.knob.directed(pilots(task, entry, SHARES[0], train, low))
    except TrainingError as error:
        train.report(f"{task} {entry.name} is not trained, as pilots for its knob's direction fail: {error}")
        return
    entry = replace(entry, knob=knob)
    value: float | None = None
    for previous, share in zip((SHARES[0], *SHARES), SHARES, strict=False):
        if value is None:
            start = knob.first_value(share, dense.size)
        else:  # from the value at the last budget
            start = value * (previous / share) ** (1 / knob.slope)
        try:
            value = train_at_budget(task, entry, share, dense, train, start)
        except UnreachableError:  # smaller budgets are not met either
            return


def train_without_knob(task: str, entry: Entry, dense: Outcome, train: Trainings) -> None:
    """Train a method without a setting for its bytes, if they do not exceed the largest budget."""
    for rate in TASKS[task].rates(entry.name)[1::-1]:
        try:
            pilot = train(entry, Trial(task, entry.name, None, "", rate, TUNING_SEED))
        except TrainingError:
            continue
        if pilot.sent <= (1 + TOLERANCE) * dense.sent / SHARES[0]:
            tune_and_compare(task, entry, train)
        return


def train_at_budget(
    task: str, entry: Entry, share: int, dense: Outcome, train: Trainings, start: float
) -> float | None:
    """Train a method at one budget; returns the value of its knob, or None if its trainings fail.

    Pilots at the task's rate, or at the lowest if the training diverges, set the knob. Then the rates are
    tried. If the bytes depend on the gradients, and so on the rate, the knob may be set again at the best
    rate; a rate that cannot meet the budget is left out.
    Raises ``UnreachableError`` if the method does not meet the budget.
    """
    knob, wanted = entry.knob, dense.sent / share
    assert knob is not None

    def match(rate: float, start: float) -> float:
        return knob.match(pilots(task, entry, share, train, rate), wanted, start)

    low, usual, _ = TASKS[task].rates(entry.name)
    try:
        try:
            value, matched_rate = match(usual, start), usual
        except TrainingError:  # the training diverges
            value, matched_rate = match(low, start), low
        tried = try_rates(task, entry, share, knob.overrides(value), train)
        if not tried:
            return None
        for rate in rates_by_quality(task, tried):
            is_off = abs(tried[rate].sent / wanted - 1) > TOLERANCE
            depends = knob.is_ragged or tried[rate].sent != tried.get(matched_rate, tried[rate]).sent
            needs_match = depends and is_off and rate != matched_rate
            try:
                value = match(rate, value) if needs_match else value
            except (UnreachableError, TrainingError):  # at this rate only: ``matched_rate`` meets the budget
                continue
            train_compared(
                Trial(task, entry.name, share, knob.overrides(value), rate, TUNING_SEED), entry, train
            )
            return value
    except TrainingError:
        return None
    raise UnreachableError


def pilots(
    task: str, entry: Entry, share: int, train: Trainings, rate: float | None = None
) -> Callable[[float], float]:
    """The bytes of a pilot with a value of the knob, at ``rate`` or the task's own."""
    knob, rate = entry.knob, rate or TASKS[task].rates(entry.name)[1]
    assert knob is not None
    return lambda value: (
        train(entry, Trial(task, entry.name, share, knob.overrides(value), rate, TUNING_SEED)).sent
    )


def tune_and_compare(task: str, entry: Entry, train: Trainings) -> list[Outcome]:
    """Try the rates without a budget, then train the compared runs at the best; empty if every rate fails."""
    tried = try_rates(task, entry, None, "", train)
    if not tried:
        return []
    rate = rates_by_quality(task, tried)[0]
    return train_compared(Trial(task, entry.name, None, "", rate, TUNING_SEED), entry, train)


def try_rates(
    task: str, entry: Entry, share: int | None, knob: str, train: Trainings
) -> dict[float, Outcome]:
    """Train at every rate with the tuning seed; the outcomes by rate, without rates at which it fails.

    While the best rate is the lowest or the highest tried, the next one is tried too.
    """
    found: dict[float, Outcome] = {}

    def train_at(rate: float) -> None:
        try:
            found[rate] = train(entry, Trial(task, entry.name, share, knob, rate, TUNING_SEED))
        except TrainingError:
            return

    low, _, high = rates = TASKS[task].rates(entry.name)
    for rate in rates:
        train_at(rate)
    for _ in range(TASKS[task].further_rates(entry.name)):
        best = next(iter(rates_by_quality(task, found)), None)
        if best == low:
            low = rounded(low / RATE_STEP)
            train_at(low)
        elif best == high:
            high = rounded(high * RATE_STEP)
            train_at(high)
    return found


def rates_by_quality(task: str, tried: dict[float, Outcome]) -> list[float]:
    """The rates in the order of their quality, best first; of two with equal quality, the lower first."""
    sign = -1 if TASKS[task].higher_is_better else 1
    return sorted(tried, key=lambda rate: (sign * tried[rate].quality, rate))


def train_compared(trial: Trial, entry: Entry, train: Trainings) -> list[Outcome]:
    """Train ``trial`` with every compared seed; the outcomes of the seeds that do not fail."""
    found = []
    for seed in range(TASKS[trial.task].seeds):
        try:
            found.append(train(entry, replace(trial, seed=seed)))
        except TrainingError:
            continue
    return found
