"""Hard threshold against Top-k at equal bytes, on a network and on the paper's logistic regression.

The statements on the page are computed from the numbers. Sahu et al., NeurIPS 2021,
https://arxiv.org/abs/2108.00951.
"""

import math
import statistics
from collections.abc import Sequence

import pandas as pd

from results.command import paragraph
from results.compare.joint_intervals import JointInterval, confidence, joint_interval
from results.compare.measures import num_parameters, qualities
from results.escaping import in_markdown
from results.figures.groups import file_stem, groups
from results.figures.kinds import figures_of
from results.figures.saving import Figures
from results.read.naming import asked, lambda_in_force
from results.read.run import Run
from results.studies.kit import Study, differences, line
from results.studies.lambda_vs_k.equal_bytes import (
    BYTES,
    NEAR,
    SUBOPTIMALITY,
    MatchedRuns,
    Seeds,
    interpolated,
    pairs_of,
    problems_of,
    ratios,
    within,
)
from results.tables import methods_table

ERROR, DENSITY = "compression/total_error", "compression/density_mean"
FIGURES = ("quality_bytes", "total_error_bytes", "density", "quality_density", "suboptimality")


def page(runs: Sequence[Run]) -> str:
    """Markdown: a section per problem."""
    words = """Does a constant threshold reach the same quality with fewer bytes than Top-k, as Sahu et al.,
        2021 (https://arxiv.org/abs/2108.00951) claim? There are two small problems; [table.md](table.md) has
        all rows. Differences are paired over seeds. The statements hold only for these problems, at this size
        and number of seeds. The results of seeds 0 to 2 were known when the thresholds were chosen; the
        thresholds were chosen only by their bytes."""
    parts = ["# Hard threshold against Top-k", "", paragraph(words)]
    for problem in problems_of(runs):
        convex = SUBOPTIMALITY in problem.first.summary
        parts.append(convex_section(problem) if convex else network_section(problem))
    return "\n".join([*parts, CHOSEN])


CHOSEN = """## How the thresholds were found

`python -m results budget model=resnet20 model.zero_init_residual=false trainer.epochs=8 --density 0.001`
found 0.183 in 5 pilot runs, and with `--density 0.003` 0.08815 in 7; 0.038 was chosen by hand. The pilot runs
have another output folder: in the same folder, the tables would show them as rows of one seed.
"""


def network_section(problem: MatchedRuns) -> str:
    """Pairs of about equal bytes: quality and total error."""
    pairs = pairs_of(problem)
    seeds, quality = problem.seeds, qualities([problem.first])[0]
    head = ["Top-k", "threshold", "bytes, threshold over Top-k", f"{quality.label}: Top-k", "threshold"]
    each = confidence(max(1, len(pairs)))
    head += [f"threshold minus Top-k [{each} %]", "in words", "total error, Top-k over threshold"]
    lines = [line(head), "|---|---|---:|---:|---:|---:|---|---:|"]
    verdicts: dict[str, list[str]] = {}
    for top_k, threshold in pairs:
        ours, theirs = problem.thresholds[threshold], problem.top_k[top_k]
        values = [quality.factor * value for value in differences(quality, ours, theirs)]
        found = joint_interval(values, len(pairs))
        word = found.word("higher", "lower")
        verdicts.setdefault(word, []).append(f"{_density(theirs)} ({found.shown()})")
        shown = [quality.spread([of_seed[seed] for seed in seeds]) for of_seed in (theirs, ours)]
        errors = [theirs[seed].summary[ERROR] / ours[seed].summary[ERROR] for seed in seeds]
        cells = [_density(theirs), _threshold(ours), _range(ratios(ours, theirs, BYTES, seeds)), *shown]
        lines.append(line([*cells, found.shown(), word, _range(errors)]))
    over = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    name = quality.label.removesuffix(", %")
    said = ". ".join(f"{name.capitalize()}: {word} at {'; '.join(where)}" for word, where in verdicts.items())
    verdict = f"""**Here, over {over}, threshold minus Top-k. {said}.** The {len(pairs)} intervals are
        Bonferroni's for {len(pairs)} comparisons, {each} % each, so that all hold together in at least 95 %
        of such experiments. A pair is Top-k and the threshold of nearest bytes, if these differ by at most
        {100 * NEAR:g} %. Bytes and total error are ratios, mean over seeds and their range."""
    figure = f"![quality against bytes]({file_stem(problem.subject)}-quality_bytes.png)\n"
    return _section(problem, over, lines, [paragraph(verdict), paragraph(_rule(problem)), figure])


def convex_section(problem: MatchedRuns) -> str:
    """Thresholds beside Top-k, interpolated to their bytes: total error and suboptimality."""
    seeds, inside = problem.seeds, within(problem)
    measures = {"total error": ERROR, "f(x) - f*": SUBOPTIMALITY}
    num_comparisons = max(1, len(inside) * len(measures))
    head = [
        "threshold",
        "kB that left a worker",
        *(f"{name}, Top-k over threshold [{confidence(num_comparisons)} %]" for name in measures),
    ]
    lines = [line([*head, "in words"]), "|---|---:|---:|---:|---|"]
    sides: dict[str, list[JointInterval]] = {name: [] for name in measures}
    for method in inside:
        of_seed, cells, words = problem.thresholds[method], [], []
        for name, metric in measures.items():
            logs = [
                math.log(interpolated(problem, of_seed[s], metric) / of_seed[s].summary[metric])
                for s in seeds
            ]
            found = joint_interval(logs, num_comparisons)
            sides[name].append(found)
            cells.append(found.shown_as_ratio())
            words.append(f"{name}: {found.word('smaller with the threshold', 'larger with the threshold')}")
        sent = statistics.fmean(run.summary[BYTES] for run in of_seed.values()) / 1e3
        lines.append(line([_threshold(of_seed), f"{sent:.1f}", *cells, "; ".join(words)]))
    over = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    said = ". ".join(_of_all(name, found) for name, found in sides.items())
    verdict = f"""**Here, over {over}: {said}.** Top-k's values are interpolated between its densities, as
        logarithms over logarithms of bytes, for every seed; thresholds outside of Top-k's range of bytes are
        left out. Ratios are geometric means; the {num_comparisons} intervals are Bonferroni's for
        {num_comparisons} comparisons. f(x) - f* is that of the last step, which varies with the rows drawn
        last."""
    figure = f"![total error against bytes]({file_stem(problem.subject)}-total_error_bytes.png)\n"
    return _section(problem, over, lines, [paragraph(verdict), figure])


def _section(problem: MatchedRuns, over: str, table: list[str], words: list[str]) -> str:
    """Heading, facts, table and the paragraphs below."""
    return "\n".join(
        [f"## {in_markdown(problem.subject)}", "", paragraph(_facts(problem, over)), *table, "", *words]
    )


def _facts(problem: MatchedRuns, over: str) -> str:
    run = problem.first
    facts = f"""{run.workers} workers, {num_parameters(run):,} parameters, {run.summary["step"]:,}
        steps, {over}."""
    if problem.dense:
        quality = qualities([run])[0]
        runs = [problem.dense[seed] for seed in problem.seeds]
        facts += f" Dense training: {quality.label} {quality.spread(runs)}, mean ± standard deviation."
    if problem.subject.endswith("digits"):
        facts += " One of the 359 test images is 0.28 points."
    return facts


def _rule(problem: MatchedRuns) -> str:
    """Statements on the density of the paper's rule, and on densities at the start and end."""
    asked = []
    for of_seed in problem.thresholds.values():
        settings = next(iter(of_seed.values())).config["compressor"]
        if settings["threshold"] is None:
            sent = statistics.fmean(of_seed[seed].summary[DENSITY] for seed in problem.seeds)
            asked.append(sent / settings["density"])
    said = []
    if asked:
        said.append(f"""The paper's rule lambda = 1 / (2 sqrt(k)) sends {min(asked):.2g} to {max(asked):.2g}
            times the requested density here: it is a starting point, not a budget.""")
    for of_seed in problem.thresholds.values():
        threshold = next(iter(of_seed.values())).config["compressor"]["threshold"]
        curves = [of_seed[seed].curve("compression/density") for seed in problem.seeds]
        if threshold is None or any(curve.empty for curve in curves):
            continue
        early, late = (
            100 * statistics.fmean(_tenth(curve, end) for curve in curves) for end in ("first", "last")
        )
        said.append(f"""Threshold {threshold:g} sends {early:.2g} % of the gradient in the first tenth of the
            steps and {late:.2g} % in the last.""")
    return " ".join(said)


def _tenth(curve: pd.Series, end: str) -> float:
    """The mean over the first or last tenth of the records."""
    count = max(1, len(curve) // 10)
    return float((curve.iloc[:count] if end == "first" else curve.iloc[-count:]).mean())


def _of_all(name: str, found: Sequence[JointInterval]) -> str:
    """A statement on all intervals of one measure; above 0, Top-k has the larger value."""
    counts = {side: sum(each.side == side for each in found) for side in (1, -1, 0)}
    words = {1: "smaller with the threshold", -1: "larger with the threshold", 0: "no difference shown"}
    said = [f"{words[side]} at {count} of {len(found)}" for side, count in counts.items() if count]
    return f"{name}: {', '.join(said)}"


def _range(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _density(of_seed: Seeds) -> str:
    return f"{100 * next(iter(of_seed.values())).config['compressor']['density']:g} %"


def _threshold(of_seed: Seeds) -> str:
    run = next(iter(of_seed.values()))
    settings, threshold = run.config["compressor"], lambda_in_force(run)
    if settings["threshold"] is not None or threshold is None:
        return asked(run).removeprefix("lambda ")
    return f"{threshold:.4g} (the rule for {100 * settings['density']:g} %)"


def table(runs: Sequence[Run], allow_modified: bool) -> str:
    """The table of all rows, in the form of ``python -m results table``."""
    folders = " ".join(f"outputs/{name}" for name in STUDY.outputs)
    return methods_table.page(runs, f"python -m results table {folders}", allow_modified=allow_modified)


def figures(runs: Sequence[Run]) -> Figures:
    """The figures of ``python -m results figures`` that the page shows or names."""
    return figures_of(groups(runs), FIGURES)


STUDY = Study(
    name="lambda_vs_k",
    question="Does a threshold reach the same quality with fewer bytes than Top-k?",
    page=page,
    outputs=("lambda_vs_k", "lambda_vs_k_madelon"),
    figures=figures,
    more_pages={"table.md": table},
)
