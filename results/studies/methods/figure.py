"""Figures of all methods, a group in each: quality over the bytes that left a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from results.compare.measures import qualities
from results.figures import sheet
from results.figures.description import points
from results.figures.groups import Series, seeds_of
from results.figures.metrics import FINAL_BYTES, as_error, of_measure
from results.figures.saving import Figures
from results.figures.style import FAMILIES, line_styles
from results.read.run import Run
from results.studies.methods.tasks import BASELINE, TASKS, Methods, by_task, order, trains

HEIGHT = 2.4  # of a panel, inches
# Methods whose families in ``FAMILIES`` hold one of these; methods of other families are in the last group
GROUPS = {
    "thresholds": ("thresholds, given or estimated", ("hard_threshold",)),
    "top_k": ("Top-k and its relatives", ("top_k", "accordion")),
    "quantised": ("signs, rounded values and low rank", ("ef_sign", "qsgd", "powersgd")),
    "others": ("random entries, wrappers and compositions", ()),
}


def figures(runs: Sequence[Run], tried: Sequence[Run]) -> Figures:
    """A figure per group of methods, with a panel per task; a task's axes are the same in all of them."""
    for group in groups_of(by_task(runs)):
        yield f"methods-{group}", partial(draw, runs, group)


def group_of(method: str) -> str:
    """The group of a method by its family; the last one for a method without a family."""
    family = next((family.methods for family in FAMILIES if method in family.methods), ())
    return next((name for name, (_, first) in GROUPS.items() if set(first) & set(family)), "others")


def groups_of(tasks: Mapping[str, Methods]) -> list[str]:
    """The groups with a method that trains in a task."""
    drawn = {
        group_of(name)
        for task, methods in tasks.items()
        for name, of_seed in methods.items()
        if name != BASELINE and trains(task, list(of_seed.values()))
    }
    return [group for group in GROUPS if group in drawn]


def draw(runs: Sequence[Run], group: str) -> Any:
    """Quality over link bytes: a mark per method of the group that trains, with its seeds as dots."""
    panels, absent = [], []
    drawn: dict[str, list[Run]] = {}
    for task, methods in by_task(runs).items():
        own = {name: list(of_seed.values()) for name, of_seed in methods.items()}
        kept = {name: each for name, each in own.items() if trains(task, each)}
        members = {name: each for name, each in kept.items() if name == BASELINE or group_of(name) == group}
        missing = sorted(name for name in own.keys() - kept.keys() if group_of(name) == group)
        absent += [f"{task}: {', '.join(missing)}"] * bool(missing)
        if members:
            quality = as_error(of_measure(qualities([run for each in kept.values() for run in each])[0]))
            whole, part = (points(each, FINAL_BYTES, quality, []) for each in (kept, members))
            lines = tuple(line for line in whole.lines if line.name in members)
            panels.append([replace(part, title=TASKS[task].words, x=whole.x, y=whole.y, lines=lines)])
            drawn |= {name: each for name, each in members.items() if name not in drawn}
    lines_of = [Series(name, name, name, (name,)) for name in sorted(drawn, key=order)]
    return sheet.draw(
        f"Quality over bytes, each method at its own learning rate: {GROUPS[group][0]}",
        seeds_of(drawn),
        panels,
        line_styles(lines_of, marked=True),
        {line.label: line.label for line in lines_of},
        notes=[f"Do not train, so not drawn: {'; '.join(absent)}."] if absent else [],
        height=HEIGHT,
    )
