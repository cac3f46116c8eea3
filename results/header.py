"""The header of a page of results: command, commit, seeds and machine.

Needs only the standard library, because benchmarks also use it.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.escaping import in_markdown
from trainers.files.working_tree import git

if TYPE_CHECKING:
    from results.read.run import Run

CLEAN, MODIFIED = "clean", "modified"


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
        commits = ", ".join(f"{commit} ({state})" for commit, state in self.commits) or "not recorded"
        facts = {
            "Command": f"`{self.command}`",
            "Commit": commits,
            "Seeds": ranges(self.seeds),
            "Machine": self.machine,
            "Date": self.date,
        }
        return [f"- {name}: {fact}" for name, fact in facts.items() if fact]


def of_runs(runs: "Iterable[Run]", command: str, *, allow_modified: bool = False) -> Header:
    """The header of a page that ``command`` makes from ``runs``.

    Raises ``ValueError`` for runs of modified code unless ``allow_modified``: their commit does not identify
    the code.
    """
    runs = list(runs)
    commits = Counter((run.commit, MODIFIED if run.modified else CLEAN) for run in runs if run.commit)
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
        machine="; ".join(sorted({machine_of(run.environment) for run in runs})),
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


def ranges(seeds: Sequence[int]) -> str:
    """Seeds as text: "0, 1, 2", or "0 to 9" for four or more in sequence."""
    rows: list[list[int]] = []
    for seed in seeds:
        if rows and seed == rows[-1][-1] + 1:
            rows[-1].append(seed)
        else:
            rows.append([seed])
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 3 else ", ".join(map(str, row)) for row in rows)
