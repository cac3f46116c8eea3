"""A method at a budget: pilots that set its knob, rates tried, and the runs that are compared."""

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace

from results.studies.league.knobs import TOLERANCE, Entry, UnreachableError, entry_of
from results.studies.league.tasks import BASELINE, SEEDS, SHARES, TASKS, TUNING_SEED
from results.studies.league.trials import Outcome, TrainingError, Trainings, Trial


def play(tasks: Sequence[str], names: Sequence[str], train: Trainings, jobs: int) -> None:
    """Train what the table needs of ``names``, and of the baseline before them; ``jobs`` methods at a time.

    Raises ``ValueError`` for a method that run.py refuses, after the others have ended.
    """
    entries = [entry_of(name) for name in names]
    with ThreadPoolExecutor(jobs) as pool:
        dense = dict(zip(tasks, pool.map(lambda task: _baseline(task, train), tasks), strict=True))
        others = [entry for entry in entries if entry.name != BASELINE]
        todo = {pool.submit(settle, task, entry, dense[task], train) for task in tasks for entry in others}
        try:
            done, _ = wait(todo, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
        finally:
            train.stopping.set()  # after an error or Ctrl-C no other training begins
            for one in todo:
                one.cancel()


def _baseline(task: str, train: Trainings) -> Outcome:
    """Dense training: its rate is tuned like all others'."""
    outcomes = settle_at(task, entry_of(BASELINE), None, "", train)
    if not outcomes:
        raise ValueError(f"dense training fails on {task} at every rate")
    return outcomes[0]


def settle(task: str, entry: Entry, dense: Outcome, train: Trainings) -> None:
    """All budgets of a method on a task."""
    if entry.knob is None:
        settle_without_knob(task, entry, dense, train)
        return
    value: float | None = None
    for before, share in zip((SHARES[0], *SHARES), SHARES, strict=False):
        if value is None:
            start = entry.knob.first(share, dense.size)
        else:  # from the last budget's value
            start = value * (before / share) ** (1 / entry.knob.slope)
        try:
            value = settle_budget(task, entry, share, dense, train, start)
        except UnreachableError:  # nor are smaller budgets met
            return


def settle_without_knob(task: str, entry: Entry, dense: Outcome, train: Trainings) -> None:
    """A method whose bytes no setting changes: it is compared at the budgets that they do not exceed."""
    for rate in TASKS[task].rates(entry.name)[1::-1]:
        try:
            pilot = train(entry, Trial(task, entry.name, None, "", rate, TUNING_SEED))
        except TrainingError:
            continue
        if pilot.sent <= (1 + TOLERANCE) * dense.sent / SHARES[0]:
            settle_at(task, entry, None, "", train)
        return


def settle_budget(
    task: str, entry: Entry, share: int, dense: Outcome, train: Trainings, start: float
) -> float | None:
    """A method at one budget; the value of its knob, or None if the method fails.

    Raises ``UnreachableError`` if it does not meet the budget.
    """
    knob, wanted = entry.knob, dense.sent / share
    assert knob is not None

    def match(rate: float, start: float) -> float:
        def sent(value: float) -> float:
            return train(entry, Trial(task, entry.name, share, knob.words(value), rate, TUNING_SEED)).sent

        return knob.match(sent, wanted, start)

    low, usual, _ = TASKS[task].rates(entry.name)
    try:
        try:
            value, at = match(usual, start), usual
        except TrainingError:  # it diverges
            value, at = match(low, start), low
        tried = tune(task, entry, share, knob.words(value), train)
        if not tried:
            return None
        for rate in by_quality(task, tried):
            is_off = knob.adapts and rate != at and abs(tried[rate].sent / wanted - 1) > TOLERANCE
            try:
                value = match(rate, value) if is_off else value
            except UnreachableError:  # at this rate; ``at`` meets it
                continue
            compare(Trial(task, entry.name, share, knob.words(value), rate, TUNING_SEED), entry, train)
            return value
    except TrainingError:
        return None
    raise UnreachableError


def settle_at(task: str, entry: Entry, share: int | None, knob: str, train: Trainings) -> list[Outcome]:
    """Rates, then the compared runs; their outcomes, none if no rate trains."""
    tried = tune(task, entry, share, knob, train)
    if not tried:
        return []
    return compare(
        Trial(task, entry.name, share, knob, by_quality(task, tried)[0], TUNING_SEED), entry, train
    )


def tune(task: str, entry: Entry, share: int | None, knob: str, train: Trainings) -> dict[float, Outcome]:
    """Outcomes of the rates at which the method does not fail."""
    found = {}
    for rate in TASKS[task].rates(entry.name):
        try:
            found[rate] = train(entry, Trial(task, entry.name, share, knob, rate, TUNING_SEED))
        except TrainingError:
            continue
    return found


def by_quality(task: str, tried: dict[float, Outcome]) -> list[float]:
    """The rates, that with the best quality first, and the lower of two equal ones."""
    sign = -1 if TASKS[task].higher_is_better else 1
    return sorted(tried, key=lambda rate: (sign * tried[rate].quality, rate))


def compare(trial: Trial, entry: Entry, train: Trainings) -> list[Outcome]:
    """The compared seeds that do not fail."""
    found = []
    for seed in SEEDS:
        try:
            found.append(train(entry, replace(trial, seed=seed)))
        except TrainingError:
            continue
    return found
