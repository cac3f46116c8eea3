"""Figure of all methods: quality over the bytes that left a worker."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from results.compare.measures import qualities
from results.figures import sheet
from results.figures.description import points
from results.figures.groups import Series, seeds_of
from results.figures.metrics import FINAL_BYTES, as_error, of_measure
from results.figures.panels import NothingToDraw
from results.figures.saving import Figures
from results.figures.style import line_styles
from results.read.run import Run
from results.studies.methods.tasks import TASKS, by_task, order, trains

HEIGHT = 3.0  # of a panel, inches


def figures(runs: Sequence[Run], tried: Sequence[Run]) -> Figures:
    """One figure with a panel per task."""
    yield "methods", lambda: draw(runs)


def draw(runs: Sequence[Run]) -> Any:
    """Quality over link bytes: a mark per method that trains, with its seeds as dots."""
    found, panels, absent = by_task(runs), [], []
    drawn: dict[str, list[Run]] = {}
    for task, methods in found.items():
        own = {name: list(of_seed.values()) for name, of_seed in methods.items()}
        kept = {name: each for name, each in own.items() if trains(task, each)}
        absent += [f"{task}: {', '.join(sorted(own.keys() - kept.keys()))}"] * (len(kept) < len(own))
        if kept:
            quality = as_error(of_measure(qualities([run for each in kept.values() for run in each])[0]))
            panels.append([replace(points(kept, FINAL_BYTES, quality, []), title=TASKS[task].words)])
            drawn |= {name: each for name, each in kept.items() if name not in drawn}
    if not panels:
        raise NothingToDraw("no method trains")
    lines = [Series(name, name, name, (name,)) for name in sorted(drawn, key=order)]
    not_drawn = [f"Do not train, so not drawn: {'; '.join(absent)}."] if absent else []
    return sheet.draw(
        "Every method at its own learning rate: quality over bytes",
        seeds_of(drawn),
        panels,
        line_styles(lines, marked=True),
        {line.label: line.label for line in lines},
        notes=not_drawn,
        height=HEIGHT,
    )
