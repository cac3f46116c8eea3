"""Rank correlations of a run's errors, and of other numbers, with its quality at equal bytes."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

import numpy as np

from results.compare.measures import LINK_BYTES, Measure
from results.compare.statistics import ERROR, holm
from results.read.matching import by_key
from results.read.naming import part_name
from results.read.run import Run
from results.studies.cifar10.sections import NONE, WHOLE, by_section
from results.studies.cifar10.top_k_beside import NEAR, ratio_of_bytes
from results.studies.kit import Seeds, by_name, first_of
from results.studies.league import scores
from results.studies.league.tasks import BASELINE, SHARES, TASKS, TUNING_SEED
from results.studies.league.trials import PREFIX, outcome_of, trial_of
from results.studies.why_measures import (
    ACCURACY,
    GAP,
    MEASURES,
    MEASURES_OF_SMALL,
    NOT_IN_LEAGUE,
    PERPLEXITY,
    REGRET,
    TOTAL,
    WAITED,
    WORST,
    XI,
    rate_of,
)
from trainers.identity.identity import DEFAULTS

CIFAR10, OWN = "cifar10_", "why_"  # beginnings of the names of runs, beside the league's
FEEDBACK = "why_feedback-"  # and of the runs of several feedbacks, which end with the feedback's
DENSITY = "why_density-"  # the same with another density, ending with network and feedback
FEWEST = 6  # methods of a comparison
RESAMPLES = 2000
ERRORS = {"mean": "error", "gain": "gain_error"}  # fields of ``Correlation``


Methods = Mapping[str, Sequence[Run]]


class Correlation(NamedTuple):
    """Spearman's coefficients of a measure with quality, and how many methods and runs have the measure."""

    measure: Measure
    methods: int
    runs: int
    of_tasks: dict[str, float]  # mean over the task's comparisons; NaN if none has different values
    mean: float  # over all comparisons
    error: float  # its standard error
    gain: float  # absolute value of the mean minus that of total error
    gain_error: float


class Pair(NamedTuple):
    """A method of the CIFAR-10 study beside the Top-k of each layer that sent as many bytes."""

    section: str
    label: str
    own: Seeds
    top_k: str
    theirs: Seeds

    @property
    def runs(self) -> tuple[list[Run], list[Run]]:
        return list(self.own.values()), list(self.theirs.values())

    def ratio(self, measure: Measure) -> float:
        """The method's mean over that of Top-k."""
        ours, theirs = (fmean(measure.values(runs)) for runs in self.runs)
        return ours / theirs

    def agrees(self, measure: Measure) -> bool:
        """Whether the method with less of ``measure`` has the higher accuracy."""
        return (self.ratio(measure) < 1) == (self.ratio(ACCURACY) > 1)

    @property
    def worst_layer(self) -> tuple[str, float, float]:
        """The layer with Top-k's largest error per element, and its densities under Top-k and this method."""

        def mean(own: Seeds, name: str, key: str) -> float:
            return fmean(run.summary["layers"][name][key] for run in own.values())

        layers = first_of(self.theirs).summary["layers"]
        errors = {name: mean(self.theirs, name, "total_error") / layers[name]["elements"] for name in layers}
        worst = max(errors, key=errors.__getitem__)
        return worst, mean(self.theirs, worst, "density_mean"), mean(self.own, worst, "density_mean")


def names(runs: Sequence[Run], _: Sequence[Run]) -> dict[str, Any]:
    """The names of the template. Raises ``ValueError`` without runs of each of the three studies."""
    of = {start: [run for run in runs if run.subject.startswith(start)] for start in (PREFIX, CIFAR10, OWN)}
    if missing := [f"{start}..." for start, own in of.items() if not own]:
        raise ValueError(f"this page needs runs of three studies, got none named {', '.join(missing)}")
    compared, one_rate = at_equal_bytes(of[PREFIX])
    kept = [(task, {name: own for name, own in one.items() if _keeps_error(own)}) for task, one in compared]
    told: dict[str, Any] = {
        "RESAMPLES": RESAMPLES,
        "FEWEST": FEWEST,
        "NEAR": NEAR,
        "ACCURACY": ACCURACY,
        "PERPLEXITY": PERPLEXITY,
        "TOTAL": TOTAL,
        "GAP": GAP,
        "WAITED": WAITED,
    }
    told |= {"in_pairs": (TOTAL, WORST, GAP, REGRET), "pairs": _pairs(of[CIFAR10])}
    fed = [run for run in of[OWN] if run.subject.startswith(FEEDBACK)]
    small = by_key([run for run in of[OWN] if not run.subject.startswith((FEEDBACK, DENSITY))], _scope_of)
    scopes = {kind: own for kind, own in small.items() if kind[1] in (NONE, "top_k")}
    scoped = [run for own in scopes.values() for run in own.values()]
    seeded = [run for run in fed if run.seed != TUNING_SEED]
    told |= {"trained": [run for own in small.values() for run in own.values()] + seeded}
    told |= {"scoped": scoped, "scopes": scopes}
    begins = {"": FEEDBACK, "gpt": f"{DENSITY}gpt-", "transformer": f"{DENSITY}transformer-"}
    networks = {name: [run for run in of[OWN] if run.subject.startswith(own)] for name, own in begins.items()}
    told["networks"] = {name: _by_feedback(own) for name, own in networks.items() if own}
    told["fed"] = by_key(seeded, _feedback_of)
    told["correlated"] = [correlations(one) for one in (compared, kept, one_rate)]
    told["correlated"].append(correlations(alike_methods(small), [*MEASURES_OF_SMALL, *NOT_IN_LEAGUE]))
    told["in_detail"] = (*NOT_IN_LEAGUE, XI)
    told["detailed"] = [
        pair
        for pair in (*told["pairs"], *small_pairs(small))
        if all(measure.values(own) for measure in told["in_detail"] for own in pair.runs)
    ]
    return told | by_name(agreeing, interval, shown)


def at_equal_bytes(league: Sequence[Run]) -> tuple[list[tuple[str, Methods]], list[tuple[str, Methods]]]:
    """Task and methods that sent bytes within ``NEAR`` of a budget: the compared runs, and runs of one rate.

    The latter are the runs with the tuning seed; of a method's runs of one rate, the nearest one counts.
    """
    compared: list[tuple[str, Methods]] = []
    of_rate: dict[tuple[str, int, float], dict[str, list[Run]]] = {}
    for one in scores.task_runs([run for run in league if run.seed != TUNING_SEED]):
        dense = scores.mean_bytes_sent(one.dense)

        def away(own: Iterable[Run], share: int, dense: float = dense) -> float:
            return abs(fmean(run.summary[LINK_BYTES] for run in own) * share / dense - 1)

        for share, methods in one.by_share.items():
            near = {
                name: [*own.values()] for name, own in methods.items() if away(own.values(), share) <= NEAR
            }
            compared.append((one.task, near))
        for run in league:
            trial = trial_of(run.config)
            if (trial.task, trial.seed) != (one.task, TUNING_SEED) or trial.method == BASELINE:
                continue
            if outcome_of(trial.task, run.summary).error:
                continue
            for share in SHARES:
                found = of_rate.setdefault((trial.task, share, trial.rate), {})
                if away([run], share) <= min(NEAR, away(found.get(trial.method, [run]), share)):
                    found[trial.method] = [run]
    return compared, [(task, methods) for (task, _, _), methods in of_rate.items()]


def _scope_of(run: Run) -> tuple[str, str, str]:
    return part_name(run.config["optimizer"]["_target_"]), run.compressor, run.config["scope"]


def _named(compressor: str, scope: str) -> str:
    return {"top_k": "Top-k", "hard_threshold": "threshold"}.get(compressor, compressor) + (
        WHOLE if scope == "global" else ""
    )


def alike_methods(small: Mapping[tuple[str, str, str], Seeds]) -> list[tuple[str, Methods]]:
    """Methods of the small training with error feedback and near Top-k's bytes, of each optimizer."""
    found: dict[str, dict[str, Sequence[Run]]] = {}
    for (optimizer, compressor, scope), own in small.items():
        top_k, runs = small.get((optimizer, "top_k", "layer")), list(own.values())
        if compressor == NONE or top_k is None or not _keeps_error(runs):
            continue
        if abs(ratio_of_bytes(own, top_k) - 1) <= NEAR:
            found.setdefault(optimizer, {})[_named(compressor, scope)] = runs
    return list(found.items())


def small_pairs(small: Mapping[tuple[str, str, str], Seeds]) -> list[Pair]:
    """Top-k of the whole model and the threshold of the small training beside its Top-k of each layer."""
    return [
        Pair(f"digits, {optimizer}", _named(compressor, scope), own, "Top-k", top_k)
        for (optimizer, compressor, scope), own in small.items()
        if (compressor, scope) in (("top_k", "global"), ("hard_threshold", "layer"))
        and (top_k := small.get((optimizer, "top_k", "layer"))) is not None
    ]


def _feedback_of(run: Run) -> str:
    return run.subject.rpartition("-")[2]


def _by_feedback(runs: Sequence[Run]) -> dict[str, Any]:
    """Rates that were tried, the run of the tuning seed by feedback and rate, and the others by feedback."""
    return {
        "rates": sorted({rate_of(run) for run in runs}),
        "at": {(_feedback_of(run), rate_of(run)): run for run in runs if run.seed == TUNING_SEED},
        "fed": by_key([run for run in runs if run.seed != TUNING_SEED], _feedback_of),
    }


def _keeps_error(own: Sequence[Run]) -> bool:
    """Whether the residual takes all of p - C(p), unlike ScaleCom's."""
    feedback = own[0].config["feedback"]
    return bool(feedback["_target_"] == DEFAULTS["feedback._target_"] and feedback.get("beta", 1) == 1)


def correlations(
    comparisons: Sequence[tuple[str, Methods]], measures: Sequence[Measure] = MEASURES
) -> list[Correlation]:
    """Rank correlation of every measure with quality, over methods of one task and budget, means over seeds.

    Comparisons of fewer than ``FEWEST`` methods are left out. A standard error is the standard deviation over
    bootstrap samples of the methods: a method is drawn with all its runs, on all tasks and at all budgets.
    """
    comparisons = [(task, methods) for task, methods in comparisons if len(methods) >= FEWEST]
    names = sorted({name for _, methods in comparisons for name in methods})
    drawn = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), RESAMPLES)
    counts = np.vstack([np.ones(len(names)), drawn])  # [1 + samples, methods]; the first are the data
    found = []
    for measure in measures:
        parts, of_total, having = [], [], []  # total error's, over the methods that have the measure
        for task, methods in comparisons:
            values = [measure.values(own) for own in methods.values()]
            means = np.array([fmean(each) if each else np.nan for each in values])
            quality = np.array([fmean(_quality(task, run) for run in own) for own in methods.values()])
            weights = counts[:, [names.index(name) for name in methods]] * ~np.isnan(means)
            parts.append(spearman(np.nan_to_num(means), quality, weights))
            totals = np.array([fmean(TOTAL.values(own)) for own in methods.values()])
            of_total.append(spearman(totals, quality, weights))
            having += [
                (name, run.path) for name, own in methods.items() for run in own if measure.values([run])
            ]
        of_task: dict[str, list[float]] = {task: [] for task, _ in comparisons}
        for (task, _), part in zip(comparisons, parts, strict=True):
            of_task[task] += [part[0]] if np.isfinite(part[0]) else []
        if not any(of_task.values()):  # a measure that the runs do not have, or a rate that is common to all
            continue
        means_of, means_of_total = np.nanmean(parts, axis=0), np.nanmean(of_total, axis=0)  # [1 + samples]
        gain = means_of * np.sign(means_of[0]) - means_of_total * np.sign(means_of_total[0])
        found.append(
            Correlation(
                measure,
                len({name for name, _ in having}),
                len(set(having)),
                {task: fmean(each) if each else np.nan for task, each in of_task.items()},
                float(means_of[0]),
                float(np.nanstd(means_of[1:])),
                float(gain[0]),
                float(np.nanstd(gain[1:])),
            )
        )
    return found


def _quality(task: str, run: Run) -> float:
    """Higher is better; a task that is not the league's has an accuracy."""
    return -scores.rank_key(task, run) if task in TASKS else float(run.summary[ACCURACY.name])


def spearman(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of a and b, both [n], in which entry i counts ``weights[:, i]`` times.

    Equal values share the mean of their ranks. ``weights`` is [samples, n], the result [samples]; NaN for a
    sample in which all values of a or of b are equal.
    """
    weights = weights.T
    centred = []
    for values in (a, b):
        below = (values < values[:, None]) + 0.5 * (values == values[:, None])
        ranks = below @ weights
        centred.append(ranks - (weights * ranks).sum(0) / np.maximum(weights.sum(0), 1))
    first, second = centred
    squares = (weights * first**2).sum(0) * (weights * second**2).sum(0)
    products = (weights * first * second).sum(0)
    return np.where(squares > 1e-9, products / np.sqrt(np.maximum(squares, 1e-9)), np.nan)


def interval(mean: float, error: float) -> tuple[float, float]:
    """The ends of a normal 95 % interval."""
    half = NormalDist().inv_cdf(1 - ERROR / 2) * error
    return mean - half, mean + half


def shown(table: Sequence[Correlation], value: str, sign: int = 0) -> list[str]:
    """The measures whose ``value``, "mean" or "gain", is not 0, by normal p-values adjusted by Holm's method.

    With a ``sign``, those whose ``value`` has it.
    """
    found = [(getattr(each, value), getattr(each, ERRORS[value])) for each in table]
    adjusted = holm([2 * NormalDist().cdf(-abs(mean) / error) if error else None for mean, error in found])
    return [
        each.measure.label
        for each, (mean, _), p in zip(table, found, adjusted, strict=True)
        if p is not None and p <= ERROR and mean * sign >= 0
    ]


def agreeing(pairs: Sequence[Pair], measure: Measure) -> int:
    return sum(pair.agrees(measure) for pair in pairs)


def _pairs(runs: Sequence[Run]) -> list[Pair]:
    """Methods of every section beside its Top-k of each layer whose bytes are within ``NEAR`` of theirs."""
    found = []
    for section, methods in by_section(runs).items():
        for top_k, theirs in methods.items():
            if not top_k.startswith("Top-k") or top_k.endswith(WHOLE):
                continue
            found += [
                Pair(section, label, own, top_k, theirs)
                for label, own in methods.items()
                if label not in (NONE, top_k)
                and not (label.startswith("threshold") and label.endswith(WHOLE))  # the layers' training
                and abs(ratio_of_bytes(own, theirs) - 1) <= NEAR
            ]
    return found
