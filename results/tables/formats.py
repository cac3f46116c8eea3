"""Sections of a comparison as Markdown, CSV and LaTeX."""

import csv
import io
import re
from collections.abc import Sequence

from results.compare.comparison import ComparedMethod, Section
from results.compare.statistics import counted, mean_and_interval, standard_deviation
from results.compare.verdicts import NOT_COMPARABLE
from results.escaping import code, in_latex, in_markdown, markdown_table
from results.read.naming import lambda_in_force, unused


def markdown(sections: Sequence[Section]) -> str:
    """Markdown with a heading, facts, a table and notes for each section."""
    return "\n".join(map(_markdown_section, sections))


def latex(sections: Sequence[Section]) -> str:
    """LaTeX with a table environment for each section; needs the packages booktabs and graphicx."""
    return "\n".join(map(_latex_section, sections, _labels(sections)))


def comma_separated(sections: Sequence[Section]) -> str:
    """CSV with a line per row of each section; numbers have the unit of their metric and all digits."""
    measures = {m.name: m for section in sections for m in (*section.qualities, *section.costs)}
    parts = {name: ("lowest", "highest") if m.words else ("mean", "std") for name, m in measures.items()}
    head = ["setting", "method", "lambda", "asked for", "compressor", "seeds", "code"]
    head += [f"{name} {part}" for name in parts for part in parts[name]]
    head += [
        "baseline",
        "difference of",
        "difference",
        "difference low",
        "difference high",
        "difference p",
        "difference seeds",
    ]
    head += ["published", "verdict", "reason"]
    text = io.StringIO()
    writer = csv.DictWriter(text, head, lineterminator="\n")
    writer.writeheader()
    for section in sections:
        for row in section.rows:
            writer.writerow(_flat(section, row))
    return text.getvalue()


def _flat(section: Section, row: ComparedMethod) -> dict[str, object]:
    line: dict[str, object] = {
        "setting": section.title,
        "method": row.method,
        "lambda": lambda_in_force(row.runs[0]),
        "asked for": row.asked,
        "compressor": row.runs[0].compressor,
        "seeds": " ".join(str(run.seed) for run in row.runs),
        "code": row.code,
        "published": row.verdict.published,
        "verdict": row.verdict.word,
        "reason": row.verdict.reason,
    }
    for measure in (*section.qualities, *section.costs):
        values = measure.values(row.runs)
        if values and measure.words is not None:  # they have no mean
            line |= {f"{measure.name} lowest": min(values), f"{measure.name} highest": max(values)}
            continue
        if values:
            line[f"{measure.name} mean"] = mean_and_interval(values)[0]
        if (deviation := standard_deviation(values)) is not None:
            line[f"{measure.name} std"] = deviation
    if row.finding:
        difference = row.finding.difference
        line |= {
            "baseline": section.baseline,
            "difference of": section.qualities[0].name,
            "difference": difference.mean,
            "difference low": difference.low,
            "difference high": difference.high,
            "difference p": row.finding.p,
            "difference seeds": " ".join(map(str, row.common)),
        }
    return line


def _cells(section: Section) -> tuple[list[str], list[list[str]]]:
    """Header and rows as text, the method first."""
    measures = (*section.qualities, *section.costs)
    head = ["method", *["asked for"] * section.has_asked, "seeds", *(measure.label for measure in measures)]
    if section.baseline:
        head.append(f"{section.qualities[0].label}, minus that of {section.baseline}")
    head += ["code"] * section.has_several_codes
    has_published = any(row.verdict.published for row in section.rows)
    head += ["published"] * has_published + ["beside the paper"] * section.has_comparable
    rows = []
    for row in section.rows:
        seeds = ", ".join(str(run.seed) for run in row.runs)
        cells = [row.name, *[row.asked] * section.has_asked, f"{seeds}{counted(len(row.runs))}"]
        cells += [measure.spread(row.runs) for measure in measures]
        if section.baseline:
            cells.append(_difference(section, row))
        cells += [row.code] * section.has_several_codes
        cells += [row.verdict.published or "-"] * has_published
        word = "-" if row.verdict.word == NOT_COMPARABLE else row.verdict.word
        cells += [word] * section.has_comparable
        rows.append(cells)
    return head, rows


def _difference(section: Section, row: ComparedMethod) -> str:
    if row.name == section.baseline:
        return "-"
    shown = row.difference(section.qualities[0])
    if len(row.common) <= 1 or row.common == tuple(run.seed for run in row.runs):
        return shown
    return f"{shown}, over seeds {', '.join(map(str, row.common))}"


def _reasons(section: Section) -> dict[str, list[str]]:
    """Verdicts and reasons, each with its methods."""
    methods: dict[str, list[str]] = {}
    for row in section.rows:
        methods.setdefault(f"{row.verdict.word}, {row.verdict.reason}.", []).append(row.name)
    return methods


def _markdown_section(section: Section) -> str:
    head, rows = _cells(section)
    words = 2 + section.has_asked
    rule = ["---"] * words + ["---:"] * (len(head) - words - section.has_comparable)
    rule += ["---"] * section.has_comparable
    lines = [f"## {in_markdown(section.title)}", "", *map(in_markdown, section.facts), ""]
    lines.append(markdown_table(head, [[code(first), *others] for first, *others in rows], rule))
    reasons = _reasons(section)
    of = {reason: "; ".join(map(code, methods)) for reason, methods in reasons.items()}
    if len(of) == 1:
        of = dict.fromkeys(of, "All rows")
    notes = [in_markdown(note) for note in section.notes]
    notes += [f"{methods}: {in_markdown(reason)}" for reason, methods in of.items()]
    return "\n".join([*lines, *(f"- {note}" for note in notes), ""])


def _labels(sections: Sequence[Section]) -> list[str]:
    """A label for each section: its title in a-z, 0-9 and hyphens, with a number if it is not unique."""
    labels: list[str] = []
    for section in sections:
        title = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-") or "runs"
        labels.append(unused(title, labels))
    return labels


def _latex_section(section: Section, label: str) -> str:
    head, rows = _cells(section)
    reasons = _reasons(section)
    notes = [*section.facts, *(f"{note.rstrip('.')}." for note in section.notes)]
    notes += [
        f"{'; '.join(methods) if len(reasons) > 1 else 'All rows'}: {reason}"
        for reason, methods in reasons.items()
    ]
    words, last = 2 + section.has_asked, section.has_comparable
    columns = "l" * words + "r" * (len(head) - words - last) + "l" * last
    body = [" & ".join(map(in_latex, cells)) + r" \\" for cells in rows]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{in_latex(section.title)}. {in_latex(' '.join(notes))}}}",
            rf"\label{{tab:{label}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(in_latex, head)) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )
