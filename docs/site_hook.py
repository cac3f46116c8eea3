"""MkDocs hook: the repository's pages outside ``docs/``, and the files that pages link to.

They get the path that they have in the repository, so that a relative link means the same on a code host
and in the site. ``docs/`` itself is the site's root. The league's page gets its data, and plotly's script.
"""

import json
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from plotly.offline import get_plotlyjs

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/results/*.md",
    "examples/my_compressor/README.md",
    "results/pages/**/*.md",
    "sweeps/README.md",
)
SOURCE = re.compile(r"^- (\[`(\S+)\.py`\]\(.*\))$", re.MULTILINE)  # a module of the API's page
LEAGUE, PLOTLY = "league.md", "plotly.min.js"
# The last task is shown first
LEAGUE_DATA = [ROOT / f"results/pages/{study}/{study}.json" for study in ("local", "league")]
LINK = re.compile(r"(\]\()(?!https://|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> None:
    inside = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    outside = [path.relative_to(ROOT).as_posix() for pattern in OUTSIDE for path in ROOT.glob(pattern)]
    linked = [path for page in inside + outside for path in _links(page)]
    for path in sorted({*outside, *linked}):
        if not path.startswith("docs/") and (ROOT / path).is_file():
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, PLOTLY, content=get_plotlyjs()))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links to the site's paths, and ``\\|`` in a table's code, which code hosts need, to ``|``."""
    uri = page.file.src_uri
    folder = posixpath.dirname(_in_repository(uri))

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2])).removeprefix("docs/")
        return match[1] + posixpath.relpath(target, posixpath.dirname(uri) or ".")

    if uri == "api.md":
        markdown = _with_docstrings(markdown)
    lines = LINK.sub(moved, markdown).splitlines()
    return "\n".join(_with_plain_bars(line) if line.startswith("|") else line for line in lines)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Add the league's data and scripts to its page; the browser asks no other host."""
    if page.file.src_uri != LEAGUE:
        return html
    told = [json.loads(path.read_text(encoding="utf-8")) for path in LEAGUE_DATA]
    tasks = {name: task for study in told for name, task in study["tasks"].items()}
    data = json.dumps({**told[-1], "tasks": tasks}).replace("<", "\\u003c")
    script, figure, style = (get_relative_url(name, page.url) for name in (PLOTLY, "league.js", "league.css"))
    return (
        f'<link rel="stylesheet" href="{style}">\n{html}\n'
        f'<script type="application/json" id="league-data">{data}</script>\n'
        f'<script src="{script}"></script>\n<script src="{figure}"></script>'
    )


def _with_docstrings(page: str) -> str:
    """The API's page with the docstrings of the modules that it lists, and of all methods."""
    configs = [path.read_text() for path in sorted((ROOT / "conf/compressor").glob("*.yaml"))]
    files = dict.fromkeys(re.findall(r"^_target_: compressors\.(\w+)", "\n".join(configs), re.MULTILINE))
    listed = "\n".join(f"- [`compressors/{file}.py`](../compressors/{file}.py)" for file in files)
    page = page.replace("\n## Feedback", f"\n{listed}\n\n## Feedback")
    return SOURCE.sub(lambda own: f"Source: {own[1]}\n\n::: {own[2].replace('/', '.')}\n", page)


def _links(page: str) -> Iterable[str]:
    folder = posixpath.dirname(page)
    for _, target in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        yield posixpath.normpath(posixpath.join(folder, target))


def _in_repository(uri: str) -> str:
    return f"docs/{uri}" if (ROOT / "docs" / uri).exists() else uri


def _with_plain_bars(row: str) -> str:
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row)
