"""The convex experiments beside the paper's numbers, as Markdown."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from results.compare.measures import LINK_BYTES
from results.compare.paper import ERROR_CURVES, EXACT, OFFSETS, PROBLEMS, ErrorCurve
from results.compare.statistics import WITHOUT_INTERVAL, counted, standard_deviation
from results.compare.verdicts import AGREES, DIFFERS, END_SHARE, is_run_of, judged, overall, tolerance
from results.escaping import in_markdown, markdown_table
from results.read.matching import by_method, by_setting
from results.read.naming import name_of, order
from results.read.run import Run

_DIFFERENCES = (
    """- **f(x0)** is that of x* + a constant, where f is steep. The released x* has an error of about 1e-8;
    ours is exact up to rounding.""",
    """- **Shards**: the paper does not state the rows of each worker. Here EF-SGD divides the file's order
    into equal blocks; EF-GD* and the heterogeneous runs draw the shards from the seed, because nothing
    else in them is random.""",
    """- **Figures read by eye** have a logarithmic axis. Ratios of 0.8 to 1.26 are within the accuracy of a
    reading; at the ends of noisy curves the accuracy is lower.""",
    """- **d threshold² / 3** is the residual of entries that grow steadily from 0 until they reach the
    threshold. Entries with a random walk, as under SGD near the optimum, return before they reach it:
    without drift, a residual that is set to 0 at ± threshold is stationary at d threshold² / 6. EF-GD* has
    no noise and stays near a third. EF-SGD is between the two values, as is the paper's own figure. When
    steps are so small that few entries reach the threshold, the residual decreases.""",
)
STATIONARY_FROM = 0.25  # share of a run's steps after which a threshold's residual is stationary


def reproduction_table(runs: list[Run]) -> str:
    """Sections for the experiments among ``runs``; the paper's numbers without a run of ours are marked."""
    sections = [
        _problems(runs),
        _curves(runs),
        _thresholds(runs),
        _ends(runs),
        _heterogeneity(runs),
        _differences(),
        _provenance(runs),
    ]
    head = "# The convex experiments beside the paper\n\n" + _text(
        """Written by `python -m results study convex` from the runs of `make convex`. Paper: Sahu et al.,
        NeurIPS 2021; *printed* numbers are from its released notebooks, *read* ones were read by eye from
        its figures, with an accuracy of about a tenth of a decade. Ours: mean ± standard deviation over
        seeds."""
    )
    return "\n".join([head, *(section for section in sections if section)])


def _problems(runs: list[Run]) -> str:
    rows = []
    for name, paper in PROBLEMS.items():
        ours = [run for run in runs if run.config["data"].get("name") == name]
        ours = [run for run in ours if run.config["model"].get("offset") == OFFSETS[name]]
        ours = [run for run in ours if run.config["model"]["l2"] is None]
        facts = ours[0].summary["problem"] if ours else {}
        for label, key, printed in (
            ("L", "smoothness", paper.smoothness),
            ("f(x0)", "start_value", paper.start_value),
            ("f*", "optimum_value", paper.optimum_value),
        ):
            if facts:
                word = AGREES if 1 / EXACT <= facts[key] / printed <= EXACT else DIFFERS
                difference = f"{facts[key] - printed:+.1e}"
                rows.append((name, label, f"{printed:.14g}", f"{facts[key]:.14g}", difference, word))
            else:
                rows.append((name, label, f"{printed:.14g}", "not run: no file", "", ""))
    header = ("data", "", "printed", "ours", "difference", "within a millionth")
    return "## The problems\n\n" + _markdown(header, rows)


def _curves(runs: list[Run]) -> str:
    """Every known value of the paper's figures, with ours and a verdict."""
    rows, verdicts = [], []
    for paper in ERROR_CURVES:
        ours = _matching(runs, paper)
        name = f"{paper.compressor}, {_settings(paper)}"
        found = judged(ours, paper)
        for value, numbers, ratio, word in found:
            row = (paper.experiment, name, value.quantity, value.at, value.source, f"{value.published:.5g}")
            if ratio is None:
                rows.append((*row, word if ours else "not run", "", tolerance(value), ""))
            else:
                exact = ratio == 1 or value.within > EXACT
                shown = f"{ratio:.2f}" if exact else f"1 {ratio - 1:+.0e}"
                rows.append((*row, _mean_std(numbers), shown, tolerance(value), word))
        if ours:
            agreeing = sum(each.word == AGREES for each in found)
            known = sum(each.ratio is not None for each in found)
            verdicts.append(
                f"{paper.experiment}, {name}: {overall(found)}, {agreeing} of {known} values agree. "
                f"Not read, so not compared: {', '.join(paper.missing)}."
            )
    header = ("experiment", "method", "quantity", "at", "source", "paper", "ours", "ours / paper")
    note = _text(
        """A value agrees if ours / paper is within a factor: 1.26 for values that were read, a tenth of a
        decade on the figures' axis; 3 if only an approximate value could be read; a millionth for values that
        are printed or follow from the settings by a rule (f(x0) - f* from the two printed values;
        ‖x - x*‖² at the start from x0 = x* + a constant; 32 bits for each of Top-k's values). A method is
        reproduced if all its values agree and at least one was read. The end of mean ‖e‖² is the mean over
        the last tenth of the records for EF-SGD, and the last record for EF-GD*."""
    )
    table = _markdown((*header, "agrees within", "verdict"), rows)
    listed = "".join(f"- {in_markdown(line)}\n" for line in verdicts)
    return f"## The paper's curves\n\n{note}\n{table}" + (f"\n{listed}" if listed else "")


def _thresholds(runs: list[Run]) -> str:
    """A threshold's residual beside d threshold^2 / 3, its value if entries grow steadily until sent."""
    rows = []
    for run_group in _groups(runs, lambda run: run.compressor == "hard_threshold"):
        threshold = run_group[0].config["compressor"]["threshold"]
        if threshold is None:
            continue
        size = run_group[0].summary["data"]["features"]
        oracle = size * threshold**2 / 3
        settled = [_stationary(run) for run in run_group]
        largest = max(run.curve("compression/error").max() for run in run_group)
        bound = size * threshold**2
        rows.append(
            (
                _name(run_group[0]),
                f"{threshold:g}",
                f"{oracle:.3g}",
                _mean_std(settled),
                f"{np.mean(settled) / oracle:.2f}",
                f"{largest / bound:.2f}",
            )
        )
    if not rows:
        return ""
    header = (
        "experiment",
        "threshold",
        "d threshold² / 3",
        "ours, settled",
        "ratio",
        "largest / d threshold²",
    )
    note = _text("Settled: mean over the records after the first quarter of the steps.")
    return "## A threshold's residual\n\n" + note + "\n" + _markdown(header, rows)


def _ends(runs: list[Run]) -> str:
    rows = []
    for group in _groups(runs):
        last = [run.summary for run in group]
        rows.append(
            (
                _name(group[0]),
                name_of(group[0]),
                len(group),
                f"{last[0]['step']:,}",
                _mean_std([s["convex/suboptimality"] for s in last]),
                _mean_std([s["convex/distance_squared"] for s in last]),
                _mean_std([s["comm/paper_bits_total"] for s in last if "comm/paper_bits_total" in s]),
                _mean_std([8 * s["comm/bytes_sent_total"] for s in last]),
                _mean_std([s["compression/total_error"] for s in last]),
            )
        )
    header = ["experiment", "method", "seeds", "steps", "f(x) - f*", "squared distance to x*"]
    header += ("bits handed over per worker, 32 per value", "bits handed over per worker, all", "total error")
    note = _text(
        """The paper counts 32 bits per kept value; the ledger counts float64 values, 32-bit indices and
        a threshold's counts."""
    )
    return "## Where each run ends\n\n" + note + "\n" + _markdown(header, rows)


def _heterogeneity(runs: list[Run]) -> str:
    """Top-k against a threshold at equal bytes, by the partition of the rows."""
    ours = [run for run in runs if run.subject == "heterogeneity"]
    rows = []
    for group in by_setting(ours):
        methods = by_method(group)
        of_kind = {
            kind: [name for name, of in methods.items() if of[0].compressor == kind]
            for kind in ("top_k", "hard_threshold")
        }
        for names in product(*of_kind.values()):
            both = [{run.seed: run for run in methods[name]} for name in names]
            pairs = [(both[0][seed], both[1][seed]) for seed in both[0] if seed in both[1]]
            if pairs:
                rows.append(_compared(names, pairs))
    if not rows:
        return ""
    header = ["split", "methods", "seeds", "bytes that left a worker, of both", "f(x) - f*, top_k"]
    header += ("f(x) - f*, hard_threshold", "total error, top_k", "total error, hard_threshold")
    note = _text(
        """`experiment=convex/heterogeneity`: EF-GD on madelon, 20 workers. f(x) - f* is compared at equal
        bytes, the smaller total of the two methods, and averaged over the last tenth of these bytes. A split
        by label has no random numbers, so its seeds are one run."""
    )
    return "## Heterogeneous workers\n\n" + note + "\n" + _markdown(header, rows)


def _compared(names: tuple[str, ...], pairs: list[tuple[Run, Run]]) -> tuple[object, ...]:
    """A row of the table: Top-k and a threshold, with the same seeds."""
    metric = "convex/suboptimality"
    equal = [min(run.summary[LINK_BYTES] for run in pair) for pair in pairs]
    quality = [
        [_value_at_bytes(pair[side], metric, sent) for pair, sent in zip(pairs, equal, strict=True)]
        for side in (0, 1)
    ]
    errors = [[pair[side].summary["compression/total_error"] for pair in pairs] for side in (0, 1)]
    split = pairs[0][0].config["data"]["partition"]
    return (split, "; ".join(names), len(pairs), *map(_mean_std, (equal, *quality, *errors)))


def _differences() -> str:
    return "## What differs\n\n" + "".join(map(_text, (*_DIFFERENCES, f"- {WITHOUT_INTERVAL}")))


def _provenance(runs: list[Run]) -> str:
    commits, machines, experiments = set(), set(), set()
    for run in runs:
        commits.add(f"{(run.commit or 'unknown')[:10]}{' (modified)' * run.modified}")
        if run.environment:
            found, torch = run.environment, run.environment.get("packages", {}).get("torch")
            machines.add(f"{found.get('processor')}, {found.get('cores')} cores, torch {torch}")
        experiments.add(_name(run))
    seeds = ", ".join(map(str, sorted({run.seed for run in runs})))
    made_from = (
        f"{len(runs)} runs of {', '.join(sorted(experiments))}; seeds {seeds}; "
        f"commit {', '.join(sorted(commits))}; {'; '.join(sorted(machines))}."
    )
    return "## Made from\n\n" + f"{in_markdown(made_from)}\n"


def _groups(runs: Iterable[Run], wanted: Callable[[Run], bool] = lambda run: True) -> list[list[Run]]:
    """Groups of runs that differ only in their seed, ordered by experiment and method."""
    groups = [of for setting in by_setting(filter(wanted, runs)) for of in by_method(setting).values()]
    return sorted(groups, key=lambda group: (_name(group[0]), order(group[0])))


def _matching(runs: list[Run], paper: ErrorCurve) -> list[Run]:
    """Our runs with exactly the settings of the paper's experiment."""
    return max(_groups(run for run in runs if is_run_of(run, paper)), key=len, default=[])


def _name(run: Run) -> str:
    partition = run.config["data"]["partition"]
    return run.subject if partition in ("iid", "contiguous") else f"{run.subject} {partition}"


def _settings(paper: ErrorCurve) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in paper.settings.items())


def _stationary(run: Run) -> float:
    errors = run.curve("compression/error")
    return float(errors[errors.index >= STATIONARY_FROM * errors.index[-1]].mean())


def _value_at_bytes(run: Run, metric: str, sent: float) -> float:
    """The mean of a metric over the last tenth of ``sent`` bytes, because it oscillates between steps."""
    totals = pd.concat([pd.Series({0: 0.0}), run.curve(LINK_BYTES)])
    window = totals.index[(totals > (1 - END_SHARE) * sent) & (totals <= sent)]
    if len(window) == 0:  # no record in the last tenth
        window = totals.index[totals <= sent][-1:]
    return float(run.curve(metric)[window].mean())


def _mean_std(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, spread = float(np.mean(values)), standard_deviation(values)
    return f"{mean:.4g}{counted(len(values))}" if spread is None else f"{mean:.4g} ± {spread:.2g}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return markdown_table(header, rows, ["---"] * len(header))


def _text(words: str) -> str:
    """A paragraph or list item, wrapped to the line length of files."""
    flat = " ".join(words.split())
    return (
        textwrap.fill(flat, 120, subsequent_indent="  " * flat.startswith("- "), break_on_hyphens=False)
        + "\n"
    )
