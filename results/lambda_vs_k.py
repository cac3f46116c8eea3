"""Hard threshold against Top-k at equal bytes, on a network and on the paper's logistic regression.

    python -m results.lambda_vs_k OUTPUT [OUTPUT ...] [--table FILE]

Runs of `make lambda_vs_k` as a Markdown page, its words from the numbers. Sahu et al., NeurIPS 2021,
https://arxiv.org/abs/2108.00951.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from results import header
from results.command import hand_out, in_a_line, paragraph
from results.escaping import in_markdown
from results.groups import file_stem
from results.looks import Look, confidence, look
from results.measures import num_parameters, qualities
from results.runs import Run, by_method, by_setting, finished_runs

NEAR = 0.1  # of Top-k's bytes: how far a threshold that stands beside it may be from them
BYTES, ERROR, DENSITY = "comm/bytes_sent_total", "compression/total_error", "compression/density_mean"
SUBOPTIMALITY = "convex/suboptimality"
FIGURES = "figures/lambda_vs_k"

Seeds = dict[int, Run]


@dataclass(frozen=True)
class Study:
    """One setting's runs by method, each by seed."""

    subject: str
    dense: Seeds  # empty without
    top_k: dict[str, Seeds]
    thresholds: dict[str, Seeds]

    @property
    def first(self) -> Run:
        return next(iter(next(iter(self.top_k.values())).values()))

    @property
    def seeds(self) -> list[int]:
        """Those that every method has."""
        every = [*self.top_k.values(), *self.thresholds.values(), *([self.dense] if self.dense else [])]
        return sorted(set.intersection(*(set(seeds) for seeds in every)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m results.lambda_vs_k", description=__doc__.splitlines()[0]
    )
    parser.add_argument("output", nargs="+", type=Path, help="folders with runs of +sweeps=lambda_vs_k...")
    parser.add_argument("--table", type=Path, help="write the page here instead of printing it")
    header.add_option(parser)
    options = parser.parse_args(arguments)
    return in_a_line(lambda: write(options))


def write(options: argparse.Namespace) -> None:
    """The page. Raises ``OSError`` and ``ValueError`` as its parts do."""
    runs = finished_runs(options.output)
    made = header.of_runs(runs, "make lambda_vs_k", allow_modified=options.allow_modified)
    hand_out(header.under_title(page(studies_of(runs)), made), options.table)


def studies_of(runs: Sequence[Run]) -> list[Study]:
    """A study per setting. Raises ``ValueError`` where one lacks Top-k, a threshold or a common seed."""
    found = []
    for group in by_setting(runs):
        kinds: dict[str, dict[str, Seeds]] = {"none": {}, "top_k": {}, "hard_threshold": {}}
        for method, of_method in by_method(group).items():
            compressor = of_method[0].compressor
            if compressor not in kinds:
                raise ValueError(f"runs must be of {', '.join(kinds)}, got {compressor}")
            kinds[compressor][method] = {run.seed: run for run in of_method}
        subject = group[0].subject
        for name in ("top_k", "hard_threshold"):
            if not kinds[name]:
                raise ValueError(f"runs of {subject} must include {name}, got none")
        dense = next(iter(kinds["none"].values()), {})
        study = Study(subject, dense, kinds["top_k"], kinds["hard_threshold"])
        if not study.seeds:
            raise ValueError(f"runs of {subject} must have a seed in common, got none")
        found.append(study)
    return sorted(found, key=lambda study: SUBOPTIMALITY in study.first.summary)


def page(studies: Sequence[Study]) -> str:
    """Markdown: a section per study."""
    words = """Does a constant threshold reach the same quality with fewer bytes than Top-k, as Sahu et al.,
        2021 (https://arxiv.org/abs/2108.00951) say? Two small problems; every row is in
        [lambda_vs_k_table.md](lambda_vs_k_table.md). Differences are paired over seeds. What is said here
        holds for these problems at this size and number of seeds, and for no others. Seeds 0 to 2 had been
        looked at when the thresholds were chosen; these were chosen by their bytes alone."""
    parts = ["# Hard threshold against Top-k", "", paragraph(words)]
    for study in studies:
        convex = SUBOPTIMALITY in study.first.summary
        parts.append(convex_section(study) if convex else network_section(study))
    return "\n".join([*parts, CHOSEN])


CHOSEN = """## How the thresholds were found

`python -m results.budget model=resnet20 model.zero_init_residual=false trainer.epochs=8 --density 0.001`
found 0.183 in 5 pilots, with `--density 0.003` 0.08815 in 7; 0.038 was found by eye. The pilots lie in
another output folder, else the tables would show them as rows of one seed.
"""


def network_section(study: Study) -> str:
    """Pairs of about equal bytes: quality and total error."""
    pairs = pairs_of(study)
    seeds, quality = study.seeds, qualities([study.first])[0]
    head = ["Top-k", "threshold", "bytes, threshold over Top-k", f"{quality.label}: Top-k", "threshold"]
    each = confidence(max(1, len(pairs)))
    head += [f"threshold minus Top-k [{each} %]", "in words", "total error, Top-k over threshold"]
    lines = [_line(head), "|---|---|---:|---:|---:|---:|---|---:|"]
    verdicts: dict[str, list[str]] = {}
    for top_k, threshold in pairs:
        ours, theirs = study.thresholds[threshold], study.top_k[top_k]
        values = [
            quality.factor * (quality.value(ours[seed]) - quality.value(theirs[seed])) for seed in seeds
        ]
        found = look(values, len(pairs))
        word = found.word("higher", "lower")
        verdicts.setdefault(word, []).append(f"{_density(theirs)} ({found.shown()})")
        shown = [quality.spread([of_seed[seed] for seed in seeds]) for of_seed in (theirs, ours)]
        ratios = [theirs[seed].summary[ERROR] / ours[seed].summary[ERROR] for seed in seeds]
        cells = [_density(theirs), _threshold(ours), _range(_ratios(ours, theirs, BYTES, seeds)), *shown]
        lines.append(_line([*cells, found.shown(), word, _range(ratios)]))
    over = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    name = quality.label.removesuffix(", %")
    said = ". ".join(f"{name.capitalize()}: {word} at {'; '.join(where)}" for word, where in verdicts.items())
    verdict = f"""**Here, over {over}, threshold minus Top-k. {said}.** The {len(pairs)} intervals are
        Bonferroni's for {len(pairs)} looks, {each} % each, so that all hold together in at least 95 % of such
        experiments. A pair is Top-k and the threshold whose bytes are nearest to its own, where they are
        within {100 * NEAR:g} %. Bytes and total error are ratios, mean over seeds and their range."""
    parts = [
        f"## {in_markdown(study.subject)}",
        "",
        paragraph(_facts(study, over)),
        *lines,
        "",
        paragraph(verdict),
    ]
    parts.append(paragraph(_rule(study)))
    parts.append(f"![quality against bytes]({FIGURES}/{file_stem(study.subject)}-quality_bytes.png)\n")
    return "\n".join(parts)


def convex_section(study: Study) -> str:
    """Thresholds beside Top-k, interpolated to their bytes: total error and suboptimality."""
    seeds, inside = study.seeds, within(study)
    measures = {"total error": ERROR, "f(x) - f*": SUBOPTIMALITY}
    looks = max(1, len(inside) * len(measures))
    head = [
        "threshold",
        "kB sent",
        *(f"{name}, Top-k over threshold [{confidence(looks)} %]" for name in measures),
    ]
    lines = [_line([*head, "in words"]), "|---|---:|---:|---:|---|"]
    sides: dict[str, list[Look]] = {name: [] for name in measures}
    for method in inside:
        of_seed, cells, words = study.thresholds[method], [], []
        for name, metric in measures.items():
            logs = [
                math.log(interpolated(study, of_seed[s], metric) / of_seed[s].summary[metric]) for s in seeds
            ]
            found = look(logs, looks)
            sides[name].append(found)
            cells.append(found.shown_as_ratio())
            words.append(f"{name}: {found.word('smaller with the threshold', 'larger with the threshold')}")
        sent = statistics.fmean(run.summary[BYTES] for run in of_seed.values()) / 1e3
        lines.append(_line([_threshold(of_seed), f"{sent:.1f}", *cells, "; ".join(words)]))
    over = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    said = ". ".join(_of_all(name, found) for name, found in sides.items())
    verdict = f"""**Here, over {over}: {said}.** Top-k's values are interpolated between its densities,
        logarithms over logarithms of bytes, for every seed; thresholds beyond Top-k's bytes are left out.
        Ratios are geometric means; the {looks} intervals are Bonferroni's for {looks} looks. f(x) - f* is
        that of the last step, which moves with the rows that were drawn last."""
    parts = [
        f"## {in_markdown(study.subject)}",
        "",
        paragraph(_facts(study, over)),
        *lines,
        "",
        paragraph(verdict),
    ]
    parts.append(
        f"![total error against bytes]({FIGURES}/{file_stem(study.subject)}-total_error_bytes.png)\n"
    )
    return "\n".join(parts)


def pairs_of(study: Study) -> list[tuple[str, str]]:
    """Every Top-k with the threshold whose bytes are nearest to its own, where there is one ``NEAR`` them."""
    pairs = []
    for top_k, theirs in study.top_k.items():
        away = {
            threshold: abs(statistics.fmean(_ratios(ours, theirs, BYTES, study.seeds)) - 1)
            for threshold, ours in study.thresholds.items()
        }
        nearest = min(away, key=lambda threshold: away[threshold])
        if away[nearest] <= NEAR:
            pairs.append((top_k, nearest))
    return pairs


def within(study: Study) -> list[str]:
    """The thresholds whose bytes lie between those of Top-k's densities, for every seed."""
    found = []
    for method, of_seed in study.thresholds.items():
        is_inside = []
        for seed in study.seeds:
            sent = [seeds[seed].summary[BYTES] for seeds in study.top_k.values()]
            is_inside.append(min(sent) <= of_seed[seed].summary[BYTES] <= max(sent))
        if all(is_inside):
            found.append(method)
    return found


def interpolated(study: Study, run: Run, metric: str) -> float:
    """What Top-k has of ``metric`` at the bytes of ``run``, for its seed."""
    points = sorted(
        (math.log(seeds[run.seed].summary[BYTES]), math.log(seeds[run.seed].summary[metric]))
        for seeds in study.top_k.values()
    )
    x, y = zip(*points, strict=True)
    return math.exp(np.interp(math.log(run.summary[BYTES]), x, y))


def _facts(study: Study, over: str) -> str:
    run = study.first
    facts = f"""{run.config["workers"]} workers, {num_parameters(run):,} parameters, {run.summary["step"]:,}
        steps, {over}."""
    if study.dense:
        quality = qualities([run])[0]
        runs = [study.dense[seed] for seed in study.seeds]
        facts += f" Dense training: {quality.label} {quality.spread(runs)}, mean ± standard deviation."
    if study.subject.endswith("digits"):
        facts += " One of the 359 test images is 0.28 points."
    return facts


def _rule(study: Study) -> str:
    """What the paper's rule sends beside what it was asked for, and when a threshold sends."""
    asked = []
    for of_seed in study.thresholds.values():
        settings = next(iter(of_seed.values())).config["compressor"]
        if settings["threshold"] is None:
            sent = statistics.fmean(of_seed[seed].summary[DENSITY] for seed in study.seeds)
            asked.append(sent / settings["density"])
    text = ""
    if asked:
        text = f"""The paper's rule lambda = 1 / (2 sqrt(k)) sends {min(asked):.2g} to {max(asked):.2g} times
        what it is asked for here: a starting point, not a budget."""
    for of_seed in study.thresholds.values():
        threshold = next(iter(of_seed.values())).config["compressor"]["threshold"]
        curves = [of_seed[seed].curve("compression/density") for seed in study.seeds]
        if threshold is None or any(curve.empty for curve in curves):
            continue
        early, late = (
            100 * statistics.fmean(_tenth(curve, end) for curve in curves) for end in ("first", "last")
        )
        text += f"""Threshold {threshold:g} sends {early:.2g} % of the gradient in the first tenth of the
            steps and {late:.2g} % in the last. """
    return text


def _tenth(curve: pd.Series, end: str) -> float:
    """The mean over the first or last tenth of the records."""
    count = max(1, len(curve) // 10)
    return float((curve.iloc[:count] if end == "first" else curve.iloc[-count:]).mean())


def _of_all(name: str, found: Sequence[Look]) -> str:
    """What the looks at one measure say together; above 0 Top-k has the more of it."""
    counts = {side: sum(each.side == side for each in found) for side in (1, -1, 0)}
    words = {1: "smaller with the threshold", -1: "larger with the threshold", 0: "no difference shown"}
    said = [f"{words[side]} at {count} of {len(found)}" for side, count in counts.items() if count]
    return f"{name}: {', '.join(said)}"


def _ratios(ours: Seeds, theirs: Seeds, metric: str, seeds: Sequence[int]) -> list[float]:
    return [ours[seed].summary[metric] / theirs[seed].summary[metric] for seed in seeds]


def _range(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _density(of_seed: Seeds) -> str:
    return f"{100 * next(iter(of_seed.values())).config['compressor']['density']:g} %"


def _threshold(of_seed: Seeds) -> str:
    settings = next(iter(of_seed.values())).config["compressor"]
    if settings["threshold"] is None:
        return f"rule for {100 * settings['density']:g} %"
    return f"{settings['threshold']:g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
