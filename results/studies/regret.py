"""Regret of every method: its total error relative to the hindsight error, and its quality.

The runs have diagnostics=hindsight. Differences in quality are relative to the hard threshold, whose regret
is 0, and are computed only for methods with equal bytes.
"""

import statistics
from collections.abc import Sequence

from results.command import paragraph
from results.compare.joint_intervals import LEAST_SEEDS, NOT_SHOWN, joint_interval
from results.compare.measures import LINK_BYTES, Measure, qualities, require_several_workers
from results.compare.statistics import WITHOUT_INTERVAL
from results.escaping import code, in_markdown
from results.figures.groups import Group, groups
from results.read.run import Run
from results.studies.kit import Study, differences, table

REGRET, BOUND = "compression/regret", "compression/regret_bound"
BASELINE = "hard_threshold"
EQUAL_WITHIN = 0.05  # of the baseline's bytes
INTRODUCTION = """Written by `python -m results study regret` from the runs of `make regret`. A run compresses
    a sequence of vectors p. Among all sparsifiers that send as many elements of this sequence, the one that
    keeps the largest magnitudes of all steps, workers and layers together has the least total error; it is a
    constant threshold. The regret is the run's total error relative to this least one, minus 1, in per cent.
    ± is the standard deviation over seeds. "Known to within" is the largest uncertainty of a run's regret,
    which is computed from a histogram of magnitudes, in percentage points.
    [docs/ledger.md](../../../docs/ledger.md#hindsight-and-regret) has the definition."""
READING = """Regret refers to a run's own p. Entries that a method does not send are part of p in later steps,
    so the least error depends on the method, and a small regret does not mean a small error; the table has
    both. MB are 10^6 bytes that left a worker over the whole training, if each worker had its own machine.
    Differences in quality are paired over seeds, with Student's 95 % interval in brackets. They are given if
    the bytes are within {within:g} % of the hard threshold's; otherwise the ratio of bytes is given."""


def page(runs: Sequence[Run]) -> str:
    """Markdown: what regret is, then a section per problem. Raises ``ValueError`` for runs of one worker."""
    require_several_workers(runs)
    found = groups(runs)
    num_comparisons = sum(len(_compared(group)) for group in found)
    words = [paragraph(INTRODUCTION), paragraph(READING.format(within=100 * EQUAL_WITHIN))]
    sections = [_section(group, num_comparisons) for group in found]
    return "\n".join(["# Regret", "", *words, *sections, paragraph(WITHOUT_INTERVAL)])


def _section(group: Group, num_comparisons: int) -> str:
    good = _quality(group)
    measures = [
        _measure(LINK_BYTES, "MB that left a worker", 1e-6),
        _measure("compression/density_mean", "average density, %", 100),
        _measure("compression/total_error", "total error"),
        _measure("compression/hindsight_error", "least in hindsight"),
        _measure(REGRET, "regret, %", 100),
    ]
    head = ["method", "seeds", *(measure.label for measure in measures), "known to within", good.label]
    head.append(f"minus {BASELINE}'s, or bytes")
    rows = []
    for method, runs in group.methods.items():
        bound = 100 * max(_values(runs, BOUND))
        seeds = ", ".join(str(run.seed) for run in runs)
        cells = [code(method), seeds, *(measure.spread(runs) for measure in measures), f"{bound:.2g}"]
        rows.append([*cells, good.spread(runs), _difference(group, method, good)])
    title = f"## {in_markdown(group.subject)}\n\n{in_markdown(group.facts)}.\n"
    return "\n".join([title, table(head, rows, words=2), paragraph(_in_words(group, good, num_comparisons))])


def _in_words(group: Group, good: Measure, num_comparisons: int) -> str:
    """Statements on the order of regrets, and on differences in quality."""
    mean = {method: statistics.mean(_values(runs, REGRET)) for method, runs in group.methods.items()}
    order = ", ".join(
        f"{code(name)} ({_regret_in_words(mean[name], _values(group.methods[name], BOUND))})"
        for name in sorted(mean, key=mean.get)
    )
    said = [f"In the order of regret: {order}."]
    baseline, compared = _baseline(group), _compared(group)
    if baseline is None:
        return f"{said[0]} Qualities are not compared: there is no {BASELINE}, or several."
    if not compared:
        return f"{said[0]} Qualities are not compared: no other method has equal bytes with enough seeds."
    words = []
    for method in compared:
        together = joint_interval(_paired(group, method, good), num_comparisons)
        words.append(f"{code(method)}: {together.word('higher', 'lower')}")
    said.append(f"Quality ({good.label}), beside {code(baseline)}: {'; '.join(words)}.")
    said.append(
        f"These words use intervals for the {num_comparisons} such comparisons of this page (Bonferroni), "
        "which all hold together in at least 95 % of such experiments; "
        f'"{NOT_SHOWN}" if an interval contains 0.'
    )
    return " ".join(said)


def _regret_in_words(mean: float, bounds: Sequence[float]) -> str:
    return "0 within the uncertainty" if mean <= statistics.mean(bounds) else f"{100 * mean:.3g} %"


def _difference(group: Group, method: str, good: Measure) -> str:
    """Quality minus the baseline's if bytes are equal, otherwise the ratio of bytes."""
    baseline = _baseline(group)
    if baseline in (None, method):
        return "-"
    if method not in _compared(group):
        return f"{_megabytes(group, method) / _megabytes(group, baseline):.2f} times the bytes"
    alone = joint_interval(_paired(group, method, good), 1)
    return good.difference(alone.mean, alone.low, alone.high, alone.seeds)


def _compared(group: Group) -> list[str]:
    """Methods with bytes within ``EQUAL_WITHIN`` of the baseline's, and enough common seeds."""
    baseline = _baseline(group)
    if baseline is None:
        return []
    whole = _megabytes(group, baseline)
    good = _quality(group)
    return [
        method
        for method in group.methods
        if method != baseline
        and abs(_megabytes(group, method) / whole - 1) <= EQUAL_WITHIN
        and len(_paired(group, method, good)) >= LEAST_SEEDS
    ]


def _paired(group: Group, method: str, good: Measure) -> list[float]:
    """Quality minus the baseline's, for each common seed."""
    own, other = ({run.seed: run for run in group.methods[name]} for name in (method, _baseline(group)))
    return differences(good, own, other)


def _baseline(group: Group) -> str | None:
    found = [method for method, runs in group.methods.items() if runs[0].compressor == BASELINE]
    return found[0] if len(found) == 1 else None


def _megabytes(group: Group, method: str) -> float:
    return statistics.mean(_values(group.methods[method], LINK_BYTES)) / 1e6


def _values(runs: Sequence[Run], name: str) -> list[float]:
    return [run.summary[name] for run in runs]


def _quality(group: Group) -> Measure:
    """The measure of quality of a problem. Raises ``ValueError`` if its runs have none."""
    found = qualities(group.runs)
    if not found:
        raise ValueError(f"{group.subject}: no run has a quality that tables know")
    return found[0]


def _measure(name: str, label: str, factor: float = 1) -> Measure:
    return Measure(name, label, lambda run: run.summary.get(name), factor)


STUDY = Study(
    name="regret",
    question="How far is a method from the least possible total error?",
    page=page,
    needs=(LINK_BYTES, REGRET, BOUND),
)
