"""Common code of the studies: their description, generation of pages and figures, and parts of pages."""

import argparse
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from results import header
from results.command import hand_out
from results.compare.measures import LINK_BYTES, Measure
from results.compare.statistics import WITHOUT_INTERVAL, Difference, paired_difference
from results.escaping import in_markdown
from results.figures.saving import Figures, save_all
from results.read.folders import finished_runs
from results.read.matching import warnings
from results.read.run import Run
from results.tables import methods_table

ROOT = Path(__file__).parents[2]
PAGES = Path("results/pages")  # below ROOT: a folder per study

Seeds = dict[int, Run]


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option that only one study has."""

    name: str  # --tuning
    help: str
    choices: tuple[str, ...] = ()  # the first is the default
    output: str = ""  # for an option with folders of further runs: the default folder

    @property
    def key(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, kw_only=True)
class Study:
    """One study: sweeps/NAME has its sweeps, results/pages/NAME its page, table and figures."""

    name: str
    question: str
    page: Callable[..., str]  # makes Markdown from the runs and the value of ``option``
    outputs: tuple[str, ...] = ()  # folders of its runs, below the root of outputs; by default NAME
    figures: Callable[..., Figures] | None = None  # with the same arguments
    data: Callable[..., Any] | None = None  # of NAME.json beside the page, with the same arguments
    needs: tuple[str, ...] = (LINK_BYTES,)  # metrics without which a run is left out
    run_names: str = ""  # beginning of its runs' names; others are left out
    option: Option | None = None
    curves: tuple[str, ...] | None = (
        None  # beginnings of the names of metrics that the page reads from records; None: all
    )
    train: ModuleType | None = None  # for a study whose next training depends on earlier results
    table: str = ""  # file beside the page with the table of `python -m results table`, of the same runs

    @property
    def command(self) -> str:
        """The command that makes runs and page."""
        return f"make {self.name}"

    @property
    def folder(self) -> Path:
        return PAGES / self.name


def make(study: Study, options: argparse.Namespace) -> None:
    """Write a study's pages and figures. Raises ``OSError`` and ``ValueError`` for unsuitable runs."""
    is_ours = not options.output  # the study's own runs and pages
    outputs = options.output or [options.root / name for name in study.outputs or (study.name,)]
    runs = [
        run
        for run in finished_runs(outputs, needs=study.needs)
        if str(run.config.get("name", "")).startswith(study.run_names)
    ]
    if not runs:
        raise FileNotFoundError(f"no finished run of the study in {', '.join(map(str, outputs))}")
    further, others = _further(study, options, is_ours)
    words = ["python", "-m", "results", "study", study.name, *map(str, outputs)]
    command = study.command if is_ours else shlex.join(words)
    made = header.of_runs([*runs, *others], command, allow_modified=options.allow_modified)
    text = header.at_end(study.page(runs, *further), made)
    folder = ROOT / study.folder if is_ours else None
    path = options.table or (folder / f"{study.name}.md" if folder else None)
    if study.figures is not None:
        place = options.figures or folder or outputs[0] / "figures"
        save_all(study.figures(runs, *further), place, pdf=options.pdf)
    if path is not None:
        if study.table:
            command = f"python -m results table {' '.join(f'outputs/{name}' for name in study.outputs)}"
            rows = methods_table.page(runs, command, allow_modified=options.allow_modified)
            hand_out(rows, path.parent / study.table)
        if study.data is not None:
            data = json.dumps(study.data(runs, *further), indent=1, allow_nan=False)
            hand_out(f"{data}\n", path.with_suffix(".json"))
    hand_out(text, path)


def _further(
    study: Study, options: argparse.Namespace, is_ours: bool
) -> tuple[tuple[Any, ...], Sequence[Run]]:
    """The value of the study's option as further arguments, and the runs in it; both may be empty."""
    if study.option is None:
        return (), ()
    given = getattr(options, study.option.key)
    if study.option.choices:
        return (given or study.option.choices[0],), ()
    if given is None and is_ours:
        given = options.root / study.option.output
    others = finished_runs([given], needs=study.needs, warn=False) if given else []  # one seed is intended
    return (others,), others


def by_name(*functions: Any) -> dict[str, Any]:
    """Functions for a template."""
    return {each.__name__: each for each in functions}


def first_of(of_seed: Mapping[int, Run]) -> Run:
    return next(iter(of_seed.values()))


def paired(measure: Measure, ours: Seeds, theirs: Seeds) -> Difference | None:
    """Ours minus theirs, mean and 95 % interval over common seeds; None without common seeds.

    There is no interval, and so no verdict, if a run of a common seed lacks the number, as one that diverged.
    """
    pairs = values_of(measure, ours, theirs)
    if not pairs:
        return None
    found = paired_difference(*zip(*pairs, strict=True))
    is_whole = len(pairs) == len(ours.keys() & theirs.keys())
    return found if is_whole else found._replace(low=None, high=None)


def values_of(measure: Measure, ours: Seeds, theirs: Seeds) -> list[tuple[float, float]]:
    """Values of ours and theirs, one pair per common seed."""
    return [
        (value, other)
        for seed in sorted(ours.keys() & theirs.keys())
        if (value := measure.value(ours[seed])) is not None
        and (other := measure.value(theirs[seed])) is not None
    ]


def notes(runs: Sequence[Run]) -> str:
    """The end of a page: versions of the code, and warnings about the runs."""
    codes = sorted({run.code for run in runs})
    said = [f"{len(runs)} runs of version {', '.join(codes)} of the code (*: modified)", *warnings(runs)]
    return "\n".join(["## Notes", "", *(f"- {in_markdown(note)}" for note in (*said, WITHOUT_INTERVAL)), ""])
