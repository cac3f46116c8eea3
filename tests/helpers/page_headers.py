"""Reading of the headers of pages."""

import re

from results.header import CLEAN, MODIFIED, Header

LINE = re.compile(r"^- (Command|Commit|Seeds|Machine|Date): (.+)$", re.M)
# for a page whose command did not record its commit: the commit that added the page's figures
FROM_HISTORY = "found by the file's history"
COMMIT = re.compile(rf"([0-9a-f]{{7,40}}) \(({CLEAN}|{MODIFIED}|{FROM_HISTORY})\)")
SEEDS = re.compile(r"(\d+)(?: to (\d+))?")


def parse(page: str) -> Header:
    """The header of a page. Raises ``ValueError`` for a fact that is missing or of another form."""
    found = dict(LINE.findall(page))
    for name in ("Command", "Commit", "Machine"):
        if name not in found:
            raise ValueError(f"a page's header must have {name}, got {', '.join(found) or 'no header'}")
    made = Header(
        command=found["Command"].strip("`"),
        commits=tuple(COMMIT.findall(found["Commit"])),
        machine=found["Machine"],
        seeds=tuple(
            seed
            for first, last in SEEDS.findall(found.get("Seeds", ""))
            for seed in range(int(first), int(last or first) + 1)
        ),
        date=found.get("Date", ""),
    )
    for name, text in found.items():
        if f"- {name}: {text}" not in made.lines():
            raise ValueError(f"a header's {name.lower()} must be as headers are written, got {text!r}")
    return made
