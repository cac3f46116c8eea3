"""The page of the league: ranks, a table per task and budget, empty cells with reasons, cost."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from results.command import paragraph
from results.compare.measures import LINK_BYTES, Measure, unequal_bytes
from results.compare.statistics import mean_and_interval
from results.escaping import Marked, code, in_markdown
from results.read.run import Run
from results.studies.kit import Seeds, first_of, notes, paired, table
from results.studies.league import scores
from results.studies.league.methods import method_names
from results.studies.league.scores import TaskRuns, quality_of
from results.studies.league.tasks import BASELINE, RATE_FACTORS, SEEDS, SHARES, TASKS, TUNING_SEED
from results.studies.league.threshold import threshold_and_top_k
from results.studies.league.trials import (
    Outcome,
    Trial,
    ended_trials,
    foreign_settings,
    short_overrides,
    trial_of,
)

INTRODUCTION = """Written by `python -m results study league` from the runs of `make league`. Every method is
    trained at three byte budgets: the bytes that dense training sends, divided by {shares}. The bytes are
    those that leave a worker if each worker has its own machine. On every task a method has the same tuning
    budget at each byte budget: pilots with seed {tuned} set its own setting (density, threshold, rank, bits),
    then {rates} learning rates are tried with seed {tuned}, a third, once and three times the task's, and the
    best is trained with seeds {seeds}. The task's learning rate is the same for all methods except `signsgd`,
    whose steps do not depend on the gradient's size, and `dgc` and `ef21_sgdm`, which have a momentum of
    their own: with their rates a constant gradient moves the parameters as far. A rate with * is the lowest
    or the highest tried, so a better one may exist. At each budget the page has, of a method's settings whose
    bytes meet the budget, the one that sends the most, also if it was set for another budget. Bytes may
    exceed a budget by {pilots:.0%} in pilots, and by {compared:.0%} as the mean of the compared seeds. `dgc`
    has no warm-up of its density, because the tasks are shorter than its warm-up; `ef21` and `ef21_sgdm` are
    used with Top-k, `diana` with QSGD."""
READING = """Rank is 1 for the best of the methods in a table: the mean over seeds, with the lowest and the
    highest of them. Seeds, data and initial weights are common to all methods, so differences are by seed. ±
    is the standard deviation over seeds, [ ] a 95 % interval. Gap is the squared norm of what the optimizer
    has not been given at the end, regret how much larger the total error is than the least for the same
    number of entries. Compression is processor time of a worker and step, without messages, on the machine of
    the header, with other work beside it. A task's target is the quality of dense training in the middle of
    its steps, or at the last evaluation before. The last three columns are the predicted seconds after which
    a method reaches the target, over links of 100 Mbit/s, 1 Gbit/s and 10 Gbit/s with a latency of 50 µs,
    each worker on a machine of its own. The fixed time of collectives is not in them. Over throttled links,
    steps of madelon, whose predicted time is below a millisecond, take 4 to 17 times as long as predicted
    ([measured](../../../benchmarks/results/league.md)), steps of wikitext2 0.5 to 1.4 times
    ([measured](../../../benchmarks/results/league_wikitext2.md)), steps of sst2 0.7 to 1.5 times
    ([measured](../../../benchmarks/results/league_sst2.md)) and steps of cifar10 1.2 to 1.5 times
    ([measured](../../../benchmarks/results/league_cifar10.md)), each with dense training and three methods.
    The error for larger models is in [compression on your network](../../../docs/guides/your_network.md)."""
SMALL = """The tasks are small and short, so that two cores can run all of them. They rank the methods here
    and at this length, and reproduce no published number."""


def page(runs: Sequence[Run], tried: Sequence[Run]) -> str:
    """Markdown: overall ranks, tables, empty cells, cost."""
    found = scores.task_runs(runs)
    facts = {
        "shares": ", ".join(map(str, SHARES)),
        "tuned": TUNING_SEED,
        "rates": len(RATE_FACTORS),
        "seeds": ", ".join(map(str, SEEDS)),
        "pilots": scores.TOLERANCE,
        "compared": 2 * scores.TOLERANCE,
    }
    parts = ["# The league: methods at equal bytes\n", paragraph(INTRODUCTION.format(**facts))]
    parts += [paragraph(READING), paragraph(SMALL), *_without_knob(runs)]
    parts += [*_foreign_settings([*runs, *tried]), _all_tasks(found)]
    parts += [threshold_and_top_k(found, tried), *map(_task, found)]
    parts += [_empty_cells(found, [*runs, *tried]), _cost(runs, tried), notes(runs)]
    return "\n".join(parts)


def _without_knob(runs: Sequence[Run]) -> list[str]:
    """A paragraph on the methods without a knob, if there are any."""
    trials = [trial_of(run.config) for run in runs]
    names = sorted({trial.method for trial in trials if trial.share is None} - {BASELINE})
    words = "have no setting that changes their bytes: one setting is at every budget that its bytes meet."
    return [paragraph(f"{', '.join(map(code, names))} {words}")] if names else []


def _foreign_settings(runs: Sequence[Run]) -> list[str]:
    """A paragraph on settings of ``--set``, if there are any."""
    found: dict[str, int] = {}
    for run in runs:
        for word in foreign_settings(run.config, run.environment.get("overrides") or []):
            found[word] = found.get(word, 0) + 1
    said = ", ".join(f"{code(word)} ({number} of {len(runs)} trainings)" for word, number in found.items())
    return [paragraph(f"**Settings that are not the league's: {said}.**")] if said else []


def _all_tasks(found: Sequence[TaskRuns]) -> str:
    """Methods in the order of their mean rank over tasks, at every budget."""
    of_share = {share: scores.relative_ranks(found, share) for share in SHARES}
    every = {name for own in of_share.values() for name in own}
    rows = []
    for name in every:
        shown = [_relative_rank(of_share[share].get(name)) for share in SHARES]
        first = next((sum(own[name]) / len(own[name]) for own in of_share.values() if own.get(name)), 1.0)
        rows.append((first, [code(name), *shown]))
    head = ["method", *(f"dense/{share}" for share in SHARES)]
    words = f"""Mean over tasks ({", ".join(one.task for one in found)}) of rank / number of methods, so lower
        is better: mean over seeds with a 95 % interval. In a column are methods that meet its budget on every
        task that at least two methods meet."""
    ordered = [row for _, row in sorted(rows, key=lambda each: (each[0], each[1][0]))]
    ranked = table(head, ordered) if ordered else "No two methods meet a budget.\n"
    return "## All tasks\n\n" + paragraph(words) + "\n" + ranked


def _relative_rank(values: Sequence[float] | None) -> str:
    if not values:
        return "-"
    mean, half = mean_and_interval(values)
    return f"{mean:.2f}" if half is None else f"{mean:.2f} [{max(0.0, mean - half):.2f}, {mean + half:.2f}]"


def _task(one: TaskRuns) -> str:
    """A table for every budget of a task."""
    quality = quality_of(one)
    label = in_markdown(quality.label)
    target = scores.target_quality(one)
    head = [
        "method",
        "setting",
        "rank",
        quality.label,
        "minus none",
        *(measure.label for measure in COSTS),
        "compression, ms",
        *(f"s at {words}" for words in scores.LINK_RATES.values()),
    ]
    parts = [
        f"## {one.task}\n",
        f"{TASKS[one.task].description}. Target, {label}: {quality.factor * target:.4g}.\n",
    ]
    for share in SHARES:
        methods = one.by_share[share]
        parts.append(f"### {one.task}, dense/{share}\n")
        if not methods:
            parts.append("No method meets this budget.\n")
            continue
        ranks = scores.ranks(one.task, methods)
        rows = [
            _row(one, name, methods[name], ranks[name], quality, target)
            for name in _by_mean_quality(one.task, methods)
        ]
        rows.append(_row(one, "none", one.dense, [], quality, target))
        parts.append(table(head, rows, words=2))
        if said := unequal_bytes({name: list(own.values()) for name, own in methods.items()}):
            parts.append(paragraph(f"{said[0].upper()}{said[1:]}."))
    return "\n".join(parts)


def _by_mean_quality(task: str, methods: Mapping[str, Seeds]) -> list[str]:
    """The methods in the order of their mean quality, the best first."""
    return sorted(
        methods, key=lambda name: fmean(scores.rank_key(task, run) for run in methods[name].values())
    )


def _row(
    one: TaskRuns, name: str, own: Seeds, ranks: Sequence[float], quality: Measure, target: float
) -> list[object]:
    runs, trial = list(own.values()), trial_of(first_of(own).config)
    difference = None if own is one.dense else paired(quality, own, one.dense)
    tried = TASKS[one.task].rates(name)
    end = "*" * (trial.rate in (tried[0], tried[-1]))
    setting = f"{short_overrides(trial.knob)} lr={trial.rate:.4g}{end}".strip()
    cells: list[object] = [code(name), code(setting), _rank(ranks)]
    cells += [quality.spread(runs), quality.difference(*difference) if difference else "-"]
    cells += [measure.spread(runs) for measure in COSTS]
    cells.append("-" if own is one.dense else COMPRESSION.spread(runs))
    return [*cells, *(_seconds(found) for found in scores.seconds_to_quality(target, one, own))]


def _rank(values: Sequence[float]) -> str:
    if not values:
        return "-"
    shown = f"{min(values):g} to {max(values):g}"
    return f"{fmean(values):.1f} ({shown})" if len(values) > 1 else f"{values[0]:g}"


def _seconds(found: float | None) -> str:
    return "not reached" if found is None else f"{found:.3g}"


def _empty_cells(found: Sequence[TaskRuns], runs: Sequence[Run]) -> str:
    """A table of the methods without a compared run at a budget, with the reason."""
    tried = ended_trials_in({run.path.parents[1] for run in runs})
    methods = sorted({*method_names(), *(trial.method for trial in tried)} - {"none"})
    rows: dict[tuple[str, str, str], list[int]] = {}
    for one in found:
        dense_bytes = scores.mean_bytes_sent(one.dense)
        for name in methods:
            for share in SHARES:
                if name in one.by_share[share]:
                    continue
                own = {
                    trial: outcome
                    for trial, outcome in tried.items()
                    if (trial.task, trial.method) == (one.task, name)
                }
                reason = TASKS[one.task].excluded.get(name) or reason_for_no_run(own, dense_bytes, share)
                rows.setdefault((name, one.task, reason), []).append(share)
    title = "## Empty cells\n\n"
    if not rows:
        return title + "Every method meets every budget on every task.\n"
    shown = [
        [code(name), task, ", ".join(f"dense/{share}" for share in shares), Marked(reason)]
        for (name, task, reason), shares in sorted(rows.items())
    ]
    return title + table(["method", "task", "budget", "why"], shown, words=4)


def ended_trials_in(folders: Iterable[Path]) -> dict[Trial, Outcome]:
    """Outcomes of the finished and failed trials below all ``folders``."""
    found: dict[Trial, Outcome] = {}
    for folder in sorted(folders):
        found |= ended_trials(folder)
    return found


def reason_for_no_run(own: Mapping[Trial, Outcome], dense_bytes: float, share: int) -> str:
    """Why a method has no compared run at the budget ``dense_bytes / share``, from all of its trials."""
    if not own:
        return "not run"
    failed = [outcome.error for outcome in own.values() if outcome.error]
    trained = {trial: outcome for trial, outcome in own.items() if not outcome.error}
    if not trained:
        return f"fails at every rate: {failed[0]}"
    trial, fewest = min(trained.items(), key=lambda item: item[1].sent)
    if fewest.sent > (1 + scores.TOLERANCE) * dense_bytes / share:
        setting = f" with {short_overrides(trial.knob)}" if trial.knob else ""
        return f"sends dense/{dense_bytes / fewest.sent:.3g} at least{setting}"
    ended = {trial: each for trial, each in own.items() if trial.share in (share, None)}
    compared = [each for trial, each in ended.items() if trial.seed in SEEDS]
    errors = [each.error for each in compared if each.error]
    if errors:
        return f"fails with {len(errors)} of the {len(SEEDS)} compared seeds: {errors[0]}"
    if len(compared) == len(SEEDS):
        return (
            f"sends dense/{dense_bytes / fmean(each.sent for each in compared):.3g} with the compared seeds"
        )
    pilots = [each.sent for trial, each in trained.items() if trial.share == share]
    if pilots and min(pilots) > (1 + scores.TOLERANCE) * dense_bytes / share:
        return f"sends dense/{dense_bytes / min(pilots):.3g} at least in its pilots"
    return "not finished"


def _cost(runs: Sequence[Run], tried: Sequence[Run]) -> str:
    hours = sum(run.summary["wall_seconds"] for run in (*runs, *tried)) / 3600
    words = f"""{len(runs)} trainings are compared, and {len(tried)} more set knobs and rates: {hours:.1f}
        hours of training, one at a time. The start of run.py, some seconds a training, is not counted."""
    return "## Cost\n\n" + paragraph(words)


def _measure(name: str, label: str, factor: float = 1) -> Measure:
    return Measure(name, label, lambda run: run.summary.get(name), factor)


COSTS = (
    _measure(LINK_BYTES, "MB that left a worker", 1e-6),
    _measure("compression/total_error", "total error"),
    _measure("diagnostics/gap", "gap"),
    _measure("compression/regret", "regret, %", 100),
)
COMPRESSION = Measure("compression_ms", "compression, ms", scores.compression_seconds, 1e3)
