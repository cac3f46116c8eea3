"""A report as HTML with embedded scripts and data, which needs no network."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.header import ranges
from results.read.matching import latest, warnings
from results.read.run import Run
from results.report.axes import Figure
from results.report.facts import (
    Page,
    Series,
    code_versions,
    common_and_varying,
    default_question,
    machines,
    pages_of,
    series_of,
    shortened,
    varying_within,
)
from results.report.interactive_figures import figures_of
from results.report.tables import Table, table_of

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Subject:
    """One section of the page."""

    name: str
    common: dict[str, str]  # settings with one value
    table: Table
    figures: Sequence[Figure]

    @classmethod
    def of(cls, name: str, series: Sequence[Series]) -> "Subject":
        common, _ = common_and_varying(page for one in series for page in one.pages)
        return cls(name, common, table_of(series), figures_of(series))


@dataclass(frozen=True)
class Report:
    """The content of a page before it is rendered as HTML."""

    title: str
    question: str
    warnings: Sequence[str]
    facts: Sequence[tuple[str, str]]  # what was run, in a few lines
    subjects: Sequence[Subject]
    pages: Sequence[Page]
    names: Mapping[str, str]  # of methods, by the key of a page

    @classmethod
    def of(
        cls,
        runs: Sequence[Run],
        outputs: Sequence[Path],
        *,
        title: str | None = None,
        question: str | None = None,
        left_out: Sequence[str] = (),
    ) -> "Report":
        """A report on ``runs`` below ``outputs``; ``left_out`` has messages on runs that were not read."""
        runs, said = latest(runs), [*warnings(runs), *left_out]
        for output in outputs:
            said = [line.replace(f"{output}/", "") for line in said]
        pages = pages_of(runs, outputs)
        found = series_of(pages)
        subjects = [Subject.of(name, series) for name, series in found.items()]
        num_series = sum(len(series) for series in found.values())
        facts = [
            ("Runs", f"{len(pages)} finished, {num_series} methods and settings"),
            ("Seeds", ranges(sorted({run.seed for run in runs}))),
            *((f"Varies: {key}", shortened(values)) for key, values in varying_within(found).items()),
            *(
                ("Code version", f"{name} ({count} run{'s' * (count > 1)})")
                for name, count in code_versions(runs).items()
            ),
            *(("Machine", machine) for machine in machines(runs)),
        ]
        return cls(
            title=title or f"Runs of {', '.join(output.resolve().name for output in outputs)}",
            question=question or default_question(found),
            warnings=said,
            facts=facts,
            subjects=subjects,
            pages=pages,
            names={page.key: one.label for series in found.values() for one in series for page in one.pages},
        )


def render(report: Report) -> str:
    """The page as HTML; equal for equal reports."""
    import jinja2
    from plotly.offline import get_plotlyjs

    figures = {
        f"figure-{number}": {"data": figure.data, "layout": figure.layout}
        for number, figure in enumerate((f for s in report.subjects for f in s.figures), 1)
    }
    plotly_js, page_js = get_plotlyjs(), (TEMPLATES / "report.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string((TEMPLATES / "report.html").read_text(encoding="utf-8"))
    trusted = jinja2.utils.markupsafe.Markup  # text of this project or of plotly, which is already HTML
    return template.render(
        report=report,
        names=report.names,
        numbers=iter(range(1, len(figures) + 1)),
        style=trusted((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        plotly_js=trusted(plotly_js),
        page_js=trusted(page_js),
        figures=trusted(in_script(figures)),
        script_hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in (plotly_js, page_js)),
    )


def in_script(value: Any) -> str:
    """JSON that is safe inside a script element for all strings."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: no line separators
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _sha256(text: str) -> str:
    """The hash by which a content security policy allows a script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
