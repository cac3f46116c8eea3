"""The small presets' table: quality, total error, density and bytes of every method, over seeds.

The page has a section on the presets with runs, one on the differences in bytes between the methods of a
table, and then the tables of ``python -m results table``.
"""

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

from results.compare.comparison import Section, compare
from results.compare.joint_intervals import joint_interval
from results.compare.measures import LINK_BYTES, qualities
from results.escaping import code, markdown_table
from results.read.run import Run
from results.studies.kit import Study, differences, paired
from results.tables.formats import markdown

PRESETS = Path(__file__).parents[2] / "conf" / "experiment" / "small"
PREFIX = "small_"  # beginning of the names of a preset's runs
MATCHED_WITHIN = 0.05  # largest relative difference of equal bytes
INTRODUCTION = """# The small presets

Written by `python -m results study small` from the runs of `make small`. Numbers are mean ± standard
deviation over the listed seeds; quality is that of the last weights. Bytes are sums over the whole training,
with indices and counts: those that would leave a worker if each worker had its own machine, and those that it
handed to collectives. Differences are paired over seeds, with Student's 95 % interval in brackets. These
presets are small enough for two cores: they compare each method with no compression, and reproduce no
published number.
"""


def page(runs: Sequence[Run]) -> str:
    """Markdown: presets, differences in bytes, and a section per setting, ordered by name."""
    sections = compare(runs)
    return "\n".join([INTRODUCTION, presets(runs), budgets(sections), markdown(sections)])


def presets(runs: Sequence[Run]) -> str:
    """A section on the presets with and without runs."""
    known = sorted(path.stem for path in PRESETS.glob("*.yaml"))
    there = {run.subject.removeprefix(PREFIX) for run in runs if run.subject.startswith(PREFIX)}
    held, missing = ([name for name in known if (name in there) == wanted] for wanted in (True, False))
    said = f"{len(held)} of the {len(known)} presets in `conf/experiment/small`: {', '.join(held) or 'none'}."
    if missing:
        said += f" Missing: {', '.join(missing)}."
    return f"## Presets on this page\n\n{said}\n"


def budgets(sections: Sequence[Section]) -> str:
    """A section on the differences in bytes between each table's methods, except the dense one."""
    rows: list[list[str]] = []
    matched: dict[int, tuple[Sequence[Run], Sequence[Run]]] = {}  # runs of both methods, by row
    for section in sections:
        methods = [row for row in section.rows if row.runs[0].compressor != "none"]
        for one, other in itertools.combinations(methods, 2):
            sent = [_megabytes(row.runs) for row in (one, other)]
            if one.runs[0].compressor == other.runs[0].compressor or None in sent or not all(sent):
                continue
            ratio = sent[0] / sent[1]
            methods_sent = code(one.name), f"{sent[0]:.3g}", code(other.name), f"{sent[1]:.3g}"
            if abs(ratio - 1) <= MATCHED_WITHIN:
                matched[len(rows)] = (one.runs, other.runs)
            rows.append([section.title, *methods_sent, f"{ratio:.2f}"])
    if not rows:
        return ""
    for number, row in enumerate(rows):
        both = matched.get(number)
        row += ["matched", _difference(*both, len(matched))] if both else ["not matched", "-"]
    said = (
        f"In {len(rows) - len(matched)} of {len(rows)} pairs the bytes differ by more than "
        f"{100 * MATCHED_WITHIN:g} %. In these pairs, a difference in quality can be an effect of the bytes. "
        "For the others the last column has the quality of the first method minus that of the second, paired "
        "over seeds. Each interval is a single one; the word after it holds for all these pairs together "
        "(Bonferroni)."
    )
    head = [
        "preset",
        "method",
        "MB that left a worker",
        "beside",
        "MB that left a worker",
        "ratio",
        "budgets",
        "difference in quality",
    ]
    rule = ["---", "---", "---:", "---", "---:", "---:", "---", "---"]
    shown = markdown_table(head, rows, rule)
    return "\n".join(["## Differences in bytes", "", said, "", shown])


def _difference(ours: Sequence[Run], theirs: Sequence[Run], num_comparisons: int) -> str:
    """Ours minus theirs with a 95 % interval, and a word by an interval for all comparisons together."""
    quality = qualities([*ours, *theirs])[0]
    one, other = ({run.seed: run for run in runs} for runs in (ours, theirs))
    found = paired(quality, one, other)
    if found is None:
        return "-"
    together = joint_interval(differences(quality, one, other), num_comparisons)
    return f"{quality.label} {quality.difference(*found)}, {together.word('higher', 'lower')}"


def _megabytes(runs: Sequence[Run]) -> float | None:
    sent = [run.summary.get(LINK_BYTES) for run in runs]
    return None if None in sent else statistics.mean(sent) / 1e6


STUDY = Study(
    name="small",
    question="What do the small presets of the paper's networks reach?",
    page=page,
    keeps=lambda run: bool(qualities([run])),
)
