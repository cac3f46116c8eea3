"""Sheet of a figure: panels, with title, legend and notes outside of the data."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from results.figures.groups import Group, code_note, legend_labels, seeds_of
from results.figures.panels import Methods
from results.figures.style import apply_style, apply_to_axis

WIDTH, HEIGHT = 6.0, 3.9  # of a panel, inches
LINE = 0.19  # from a line of text to the next, inches
CHARACTER = 0.073  # inches of a character, about
HANDLE = 0.75  # inches of what stands before a legend's text, and of the gap to the next column
EDGE = 0.14  # inches


def draw(
    group: Group,
    drawn: Methods,
    title: str,
    panels: Sequence[tuple[Callable[[Any], list[str]], str, str]],
    height: float = HEIGHT,
    share_y: bool = False,
) -> Any:
    """A figure with the panels side by side, each a function of its axis, its x and its y label.

    ``drawn`` are those of the group's runs that the panels show.
    """
    from matplotlib.figure import Figure

    apply_style()
    width = WIDTH * len(panels) if len(panels) > 1 else WIDTH + 1
    figure = Figure(layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=share_y)[0]
    notes = _not_drawn(group, drawn)
    for axis, (panel, x_label, y_label) in zip(axes, panels, strict=True):
        notes += panel(axis)
        axis.set(xlabel=x_label, ylabel=y_label)
        apply_to_axis(axis)
    notes += [note] if (note := code_note(run for runs in drawn.values() for run in runs)) else []
    _around(figure, group, drawn, title, list(dict.fromkeys(notes)), width, height)
    return figure


def _not_drawn(group: Group, drawn: Methods) -> list[str]:
    paths = {run.path for runs in drawn.values() for run in runs}
    missing = {
        f"{method}, seed {run.seed}" if method in drawn else method: None
        for method, runs in group.methods.items()
        for run in runs
        if run.path not in paths
    }
    return [f"Not drawn, for want of a number: {'; '.join(missing)}."] if missing else []


def _around(
    figure: Any, group: Group, drawn: Methods, title: str, notes: list[str], width: float, height: float
) -> None:
    """Title above the panels, legend and notes below, and the figure as high as all that needs."""
    from matplotlib.lines import Line2D

    across = int((width - 2 * EDGE) / CHARACTER)
    title = textwrap.fill(title, int(across * 0.75))
    facts = textwrap.wrap(f"{group.facts}; {seeds_of(drawn, '95 % interval')}", across)
    notes = [line for note in notes for line in textwrap.wrap(note, int(across * 1.1))]
    labels = legend_labels(drawn)
    longest = max(len(label) for label in labels.values())
    fitting = max(1, int((width - 2 * EDGE) / (HANDLE + CHARACTER * longest)))
    columns = _columns(drawn, fitting)
    rows = max(map(len, columns))
    title_lines = 1.3 * (title.count("\n") + 1)
    above = EDGE + LINE * title_lines + LINE * len(facts)
    below = 2 * EDGE + 0.18 * rows + LINE * len(notes) + (EDGE / 2 if notes else 0)
    total = above + height + below
    figure.set_size_inches(width, total)
    figure.get_layout_engine().set(rect=(0, below / total, 1, height / total))
    left = EDGE / width
    top = 1 - EDGE / total
    figure.text(left, top, title, va="top", fontsize=11, fontweight="bold")
    figure.text(
        left, top - title_lines * LINE / total, "\n".join(facts), va="top", fontsize=9, linespacing=1.4
    )
    handles = [
        Line2D([], [], label=labels[method], **group.styles[method])
        if method
        else Line2D([], [], label=" ", alpha=0)
        for column in columns
        for method in [*column, *[None] * (rows - len(column))]
    ]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(left, (below - EDGE) / total),
        ncols=len(columns),
        frameon=False,
        handlelength=4,
        borderpad=0,
        borderaxespad=0,
        labelspacing=0.45,
    )
    if notes:
        figure.text(
            left,
            EDGE / 2 / total,
            "\n".join(notes),
            va="bottom",
            fontsize=7.5,
            color="#444444",
            linespacing=1.4,
        )


def _columns(drawn: Methods, fitting: int) -> list[list[str]]:
    """Methods by column of a legend: a family begins a column of its own, where there is room."""
    methods, families = list(drawn), {}
    for method, runs in drawn.items():
        families.setdefault(runs[0].identity.method.family, []).append(method)
    if len(families) > fitting:
        rows = -(-len(methods) // fitting)
        return [methods[i : i + rows] for i in range(0, len(methods), rows)]
    rows = -(-max(map(len, families.values())) // (fitting // len(families)))
    return [each[i : i + rows] for each in families.values() for i in range(0, len(each), rows)]
