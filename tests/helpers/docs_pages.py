"""The pages of the documentation: prose, code blocks, commands, links and anchors."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "sweeps/README.md",
    ROOT / "examples/my_compressor/README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]
RESULTS = sorted([*ROOT.glob("results/pages/**/*.md"), *ROOT.glob("benchmarks/results/*.md")])
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
LINK = re.compile(r"\]\(([^)\s]+)\)")
REFERENCE = re.compile(r"^\[[^\]]+\]: (\S+)$", re.MULTILINE)
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"`((?:sudo |\.venv/bin/)?(?:python|torchrun|make|wandb) [^`]+)`")


def prose(page: Path) -> str:
    """A page without its code blocks and code spans."""
    return re.sub(r"`[^`\n]+`", "`code`", FENCE.sub("", page.read_text()))


def blocks(page: Path, language: str) -> list[str]:
    """Code blocks in a language; "" means commands and output."""
    return [block for found, block in FENCE.findall(page.read_text()) if found == language]


def entries(nav: list[Any]) -> list[str]:
    """The paths in mkdocs.yml's navigation."""
    values = [value for item in nav for value in item.values()]
    return [path for value in values for path in ([value] if isinstance(value, str) else entries(value))]


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of the headings, without those that differ between code hosts and the site."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {slug(heading) for heading in headings if slug(heading) == re.sub("-+", "-", slug(heading))}


def slug(heading: str) -> str:
    """The anchor of a heading by GitHub's rule; Python-Markdown also joins hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def commands() -> set[str]:
    """Every command: in blocks without a language, and in code spans of prose."""
    found = set()
    for page in PAGES:
        for block in blocks(page, ""):
            if not is_output(block):
                found |= {line.split(" #")[0].strip() for line in block.splitlines()}
        for line in TYPED.findall(FENCE.sub("", page.read_text())):
            found |= {part.strip() for part in line.replace("\\|", "|").split(";")}
    return found - {""}


def is_output(block: str) -> bool:
    """Whether a block shows output, a formula or a diagram, by its first words."""
    return not re.match(r"(sudo|python|\.venv/bin/|torchrun|make|wandb|export|python3\.11) ?", block)
