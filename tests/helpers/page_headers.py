"""Reading of the headers of pages."""

import re

from results.header import Header

LINE = re.compile(r"^- (Command|Commit|Seeds|Machine|Date): (.+)$", re.M)
COMMIT = re.compile(r"([0-9a-f]{7,40}) \((.+?)\)")
# for a page whose command did not record its commit: the commit that added the page's figures
FROM_HISTORY = "found by the file's history"


def parse(page: str) -> Header:
    """The header of a page. Raises ``KeyError`` if a fact is missing, ``AssertionError`` for another form."""
    found = dict(LINE.findall(page))
    ends = [part.split(" to ") for part in found["Seeds"].split(", ")] if "Seeds" in found else []
    made = Header(
        command=found["Command"].strip("`"),
        commits=tuple(COMMIT.findall(found["Commit"])),
        machine=found["Machine"],
        seeds=tuple(seed for own in ends for seed in range(int(own[0]), int(own[-1]) + 1)),
        date=found.get("Date", ""),
    )
    assert set(made.lines()) == {f"- {name}: {text}" for name, text in found.items()}
    return made
