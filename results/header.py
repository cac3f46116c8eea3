"""The header of a page of results: command, commit, seeds and machine, written and read back.

Needs only the standard library, because benchmarks also use it.
"""

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.escaping import in_markdown
from trainers.files.working_tree import git

if TYPE_CHECKING:
    from results.read.run import Run

CLEAN, MODIFIED = "clean", "modified"
# for a page whose command did not record its commit: the commit that added the page's figures
FROM_HISTORY = "found by the file's history"
STATES = (CLEAN, MODIFIED, FROM_HISTORY)
_FIELDS = ("Command", "Commit", "Seeds", "Machine", "Date")
_LINE = re.compile(rf"^- ({'|'.join(_FIELDS)}): (.+)$")
_COMMIT = re.compile(r"([0-9a-f]{7,40}) \(([^)]+)\)")
_UNKNOWN = "not recorded"


@dataclass(frozen=True, kw_only=True)
class Header:
    """Command, commits, seeds and machine that made a page. Without ``commits`` the code is not known."""

    command: str  # run in the repository's root
    commits: tuple[tuple[str, str], ...]  # hash, state
    machine: str
    seeds: tuple[int, ...] = ()
    date: str = ""

    def lines(self) -> list[str]:
        """Lines of a Markdown list, one item per fact."""
        commits = ", ".join(f"{commit} ({state})" for commit, state in self.commits) or _UNKNOWN
        facts = {"Command": f"`{self.command}`", "Commit": commits, "Machine": self.machine}
        facts |= {"Seeds": ranges(self.seeds)} if self.seeds else {}
        facts |= {"Date": self.date} if self.date else {}
        return [f"- {name}: {facts[name]}" for name in _FIELDS if name in facts]


def of_runs(runs: "Iterable[Run]", command: str, *, allow_modified: bool = False) -> Header:
    """The header of a page that ``command`` makes from ``runs``.

    Raises ``ValueError`` for runs of modified code unless ``allow_modified``: their commit does not identify
    the code.
    """
    runs = list(runs)
    commits: dict[tuple[str, str], int] = {}
    machines: dict[str, None] = {}
    for run in runs:
        commit = str(run.environment.get("commit"))
        state = MODIFIED if run.environment.get("commit_is_modified") else CLEAN
        if _COMMIT.fullmatch(f"{commit} ({state})"):
            commits[commit, state] = commits.get((commit, state), 0) + 1
        machines[machine_of(run.environment)] = None
    modified = [(commit, count) for (commit, state), count in commits.items() if state == MODIFIED]
    if modified and not allow_modified:
        said = ", ".join(f"{count} of {commit[:10]}" for commit, count in sorted(modified))
        raise ValueError(
            f"runs of a page must be of committed code, got modified code in {said}; "
            "--allow-modified writes the page and says so on it"
        )
    return Header(
        command=command,
        commits=tuple(sorted(commits)),
        machine="; ".join(sorted(machines)),
        seeds=tuple(sorted({run.seed for run in runs})),
    )


def machine_of(environment: dict[str, Any]) -> str:
    """Processor, cores, GPUs in use, system and versions, from a run's environment.json."""
    torch = environment.get("packages", {}).get("torch")
    cores = environment.get("cores")
    facts = [
        environment.get("processor") or "processor not recorded",
        f"{cores} cores" if cores else "",
        " and ".join(environment.get("gpus", [])),
        str(environment.get("platform") or "").split("-")[0],
        f"Python {environment['python']}" if environment.get("python") else "",
        f"torch {torch}" if torch else "",
    ]
    return ", ".join(in_markdown(fact) for fact in facts if fact)


def of_this_tree(command: str, machine: str) -> Header:
    """The header of a page of measurements by this process, with the present code."""
    here = Path(__file__).parent
    commit = git(here, "rev-parse", "HEAD")
    state = MODIFIED if git(here, "status", "--porcelain", "--untracked-files=no") else CLEAN
    date = time.strftime("%Y-%m-%d", time.gmtime())
    commits = ((commit, state),) if commit else ()
    return Header(command=command, commits=commits, machine=in_markdown(machine), date=date)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option --allow-modified, which every command that writes a page has."""
    parser.add_argument(
        "--allow-modified",
        action="store_true",
        help="write the page from runs of modified code too, and say so in its header",
    )


def at_end(page: str, header: Header) -> str:
    """The page with the header as its last section."""
    return "\n".join([page.rstrip("\n"), "", "## Made by", "", *header.lines(), ""])


def parse(page: str) -> Header:
    """The header of a page. Raises ``ValueError`` if command, commit or machine is missing or malformed."""
    found = {match[1]: match[2] for line in page.splitlines() if (match := _LINE.match(line))}
    for name in ("Command", "Commit", "Machine"):
        if name not in found:
            raise ValueError(f"a page's header must have {name}, got {', '.join(found) or 'no header'}")
    commits = tuple(_COMMIT.findall(found["Commit"]))
    said = ", ".join(f"{commit} ({state})" for commit, state in commits) or _UNKNOWN
    if said != found["Commit"] or any(state not in STATES for _, state in commits):
        raise ValueError(f"a header's commit must be HASH ({'|'.join(STATES)}), got {found['Commit']!r}")
    if not re.fullmatch("`[^`]+`", found["Command"]):
        raise ValueError(f"a header's command must stand in one pair of backticks, got {found['Command']}")
    return Header(
        command=found["Command"].strip("`"),
        commits=commits,
        machine=found["Machine"],
        seeds=_numbers(found["Seeds"]) if "Seeds" in found else (),
        date=found.get("Date", ""),
    )


def ranges(seeds: Sequence[int]) -> str:
    """Seeds as text: "0, 1, 2", or "0 to 9" for four or more in sequence."""
    rows: list[list[int]] = []
    for seed in seeds:
        if rows and seed == rows[-1][-1] + 1:
            rows[-1].append(seed)
        else:
            rows.append([seed])
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 3 else ", ".join(map(str, row)) for row in rows)


def _numbers(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(", "):
        ends = re.fullmatch(r"(\d+)(?: to (\d+))?", part)
        if ends is None:
            raise ValueError(f"a header's seeds must be numbers, got {text!r}")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(found)
