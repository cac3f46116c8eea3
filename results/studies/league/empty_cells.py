"""Methods without a compared run at a budget of the league, with the reason."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from results.compare.knobs import TOLERANCE
from results.read.run import Run
from results.studies.league.scores import TaskRuns, mean_bytes_sent
from results.studies.league.tasks import BASELINE, SHARES, TASKS
from results.studies.league.trials import Outcome, Trial, ended_trials

NOT_RUN = "not run"


def trials_beside(runs: Sequence[Run]) -> dict[Trial, Outcome]:
    """All finished and failed trials in the folders of ``runs``."""
    found: dict[Trial, Outcome] = {}
    for folder in sorted({run.path.parents[1] for run in runs}):
        found |= ended_trials(folder)
    return found


def empty_cells(
    found: Sequence[TaskRuns], tried: Mapping[Trial, Outcome]
) -> list[tuple[str, str, list[int], str]]:
    """Method, task, budgets and reason, from all finished and failed trials.

    A method without any trial has not entered the league: it is no part of the page.
    """
    excluded_ones = {name for task in TASKS.values() for name in task.excluded}
    methods = {*excluded_ones, *(trial.method for trial in tried)} - {BASELINE}
    cells: dict[tuple[str, str, str], list[int]] = {}
    for one in found:
        dense_bytes = mean_bytes_sent(one.dense)
        for name in methods:
            own = {
                trial: outcome
                for trial, outcome in tried.items()
                if (trial.task, trial.method) == (one.task, name)
            }
            for share in SHARES:
                if name not in one.by_share[share]:
                    excluded = TASKS[one.task].excluded.get(name)
                    reason = excluded or reason_for_no_run(own, dense_bytes, share, TASKS[one.task].seeds)
                    cells.setdefault((name, one.task, reason), []).append(share)
    return [(name, task, shares, reason) for (name, task, reason), shares in sorted(cells.items())]


def reason_for_no_run(own: Mapping[Trial, Outcome], dense_bytes: float, share: int, seeds: int) -> str:
    """Why a method lacks one of ``seeds`` runs at the budget ``dense_bytes / share``, from all its trials."""
    if not own:
        return NOT_RUN
    failed = [outcome.error for outcome in own.values() if outcome.error]
    trained = {trial: outcome for trial, outcome in own.items() if not outcome.error}
    if not trained:
        return f"fails at every rate: {failed[0]}"
    trial, fewest = min(trained.items(), key=lambda item: item[1].sent)
    if fewest.sent > (1 + TOLERANCE) * dense_bytes / share:
        setting = f" with {trial.short_knob}" if trial.knob else ""
        return f"sends dense/{dense_bytes / fewest.sent:.3g} at least{setting}"
    ended = {trial: each for trial, each in own.items() if trial.share in (share, None)}
    compared = [each for trial, each in ended.items() if trial.seed in range(seeds)]
    errors = [each.error for each in compared if each.error]
    if errors:
        return f"fails with {len(errors)} of the {seeds} compared seeds: {errors[0]}"
    if len(compared) == seeds:
        return (
            f"sends dense/{dense_bytes / fmean(each.sent for each in compared):.3g} with the compared seeds"
        )
    pilots = [each.sent for trial, each in trained.items() if trial.share == share]
    if pilots and min(pilots) > (1 + TOLERANCE) * dense_bytes / share:
        return f"sends dense/{dense_bytes / min(pilots):.3g} at least in its pilots"
    return "not finished"
