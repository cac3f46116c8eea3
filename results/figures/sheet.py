"""Composition of a figure: panels, with title, legend and notes around them."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from results.compare.measures import unequal_bytes
from results.figures.description import Methods, Panel, notes_of
from results.figures.groups import Group, code_note, legend_labels, seeds_of
from results.figures.metrics import BYTES
from results.figures.panels import draw as draw_panel
from results.figures.style import apply_style, apply_to_axis

# All in inches. A page shows a figure 800 pixels wide; in a figure of 8 inches, letters of 9 points are then
# 12 pixels high.
WIDTH, NARROW = 8.0, 7.0  # width of a figure with several columns of panels, and with one column
HEIGHT = 3.6  # of a panel
LINE, NOTE_LINE = 0.19, 0.15  # distance between lines of text
CHARACTER, NARROW_CHARACTER = 0.073, 0.067  # width of a character: the largest, and the mean in long lines
HANDLE = 0.75  # width of a legend's symbol and of the gap to the next column
EDGE = 0.14


def of_group(
    group: Group,
    drawn: Methods,
    title: str,
    panels: Sequence[Panel],
    height: float = HEIGHT,
    share_y: bool = False,
) -> Any:
    """A figure of the runs ``drawn`` of a group, with the panels side by side."""
    runs = [run for runs in drawn.values() for run in runs]
    return draw(
        title,
        f"{group.facts}; {seeds_of(drawn)}",
        [panels],
        group.styles,
        legend_labels(drawn),
        families={method: runs[0].identity.method.family for method, runs in drawn.items()},
        notes=[*_not_drawn(group, drawn), *_unequal_bytes(drawn, panels), *filter(None, [code_note(runs)])],
        height=height,
        share_y=share_y,
    )


def draw(
    title: str,
    facts: str,
    rows: Sequence[Sequence[Panel]],
    styles: Mapping[str, Mapping[str, Any]],
    labels: Mapping[str, str],
    *,
    families: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    height: float = HEIGHT,
    share_y: bool = False,
) -> Any:
    """A figure with rows of panels; ``labels`` are those of the legend, by name, in order.

    The names of a family are in one column of the legend, if there is room.
    """
    from matplotlib.figure import Figure

    apply_style()
    rows = _with_common_y(rows) if share_y else rows
    columns = max(map(len, rows))
    width = WIDTH if columns > 1 else NARROW
    figure = Figure(layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False, sharey=share_y)
    said = list(notes)
    for row, panels in zip(axes, rows, strict=True):
        for axis, panel in zip(row, panels, strict=True):
            draw_panel(axis, panel, styles)
            axis.set_ylabel(_wrapped(panel.y.label, height))
            apply_to_axis(axis)
    said += notes_of(panel for panels in rows for panel in panels)
    places = families or dict.fromkeys(labels, "")
    _around(
        figure, title, facts, list(dict.fromkeys(said)), styles, labels, places, width, height * len(rows)
    )
    return figure


def _with_common_y(rows: Sequence[Sequence[Panel]]) -> list[list[Panel]]:
    """The panels with the limits of them all: matplotlib would give shared axes those of the last one.

    Panels with different kinds of axes are returned as they are.
    """
    scales = [panel.y.scale for row in rows for panel in row if panel.y.scale.limits is not None]
    kinds = {(scale.logarithmic, scale.limits[0] > scale.limits[1]) for scale in scales if scale.limits}
    if len(kinds) != 1:
        return [list(row) for row in rows]
    ((_, is_inverted),) = kinds
    ends = sorted(end for scale in scales for end in scale.limits or ())
    limits = (ends[-1], ends[0]) if is_inverted else (ends[0], ends[-1])
    return [
        [replace(panel, y=replace(panel.y, scale=replace(panel.y.scale, limits=limits))) for panel in row]
        for row in rows
    ]


def _wrapped(label: str, height: float) -> str:
    """A label, wrapped to lines that fit a panel of this height."""
    return "\n".join(textwrap.wrap(" ".join(label.split()), int((height - 0.2) / NARROW_CHARACTER)))


def _unequal_bytes(drawn: Methods, panels: Sequence[Panel]) -> list[str]:
    """A note on unequal bytes, which every axis of bytes shows."""
    said = unequal_bytes(drawn)
    if not said or all(panel.x.label.startswith(BYTES.label.split(",")[0]) for panel in panels):
        return []
    return [f"{said[0].upper()}{said[1:]}."]


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
    figure: Any,
    title: str,
    facts: str,
    notes: Sequence[str],
    styles: Mapping[str, Mapping[str, Any]],
    labels: Mapping[str, str],
    families: Mapping[str, str],
    width: float,
    height: float,
) -> None:
    """Add the title above the panels, and legend and notes below; set the figure's height."""
    from matplotlib.lines import Line2D

    across = int((width - 2 * EDGE) / CHARACTER)
    title = textwrap.fill(title, int(across * 0.75))
    facts_lines = textwrap.wrap(facts, int((width - 2 * EDGE) / NARROW_CHARACTER))
    notes_lines = [line for note in notes for line in textwrap.wrap(note, int(across * 1.2))]
    room = int((width - 2 * EDGE - HANDLE) / CHARACTER)
    labels = {name: textwrap.fill(label, room) for name, label in labels.items()}
    longest = max(len(line) for label in labels.values() for line in label.splitlines())
    fitting = max(1, int((width - 2 * EDGE) / (HANDLE + CHARACTER * longest)))
    columns = _columns(families, fitting)
    rows = max(map(len, columns))
    lines = max(rows, *(sum(labels[name].count("\n") + 1 for name in column) for column in columns))
    title_lines = 1.3 * (title.count("\n") + 1)
    above = EDGE + LINE * title_lines + LINE * len(facts_lines)
    below = 2 * EDGE + 0.18 * lines + NOTE_LINE * len(notes_lines) + (EDGE / 2 if notes_lines else 0)
    total = above + height + below
    figure.set_size_inches(width, total)
    figure.get_layout_engine().set(rect=(0, below / total, 1, height / total))
    left = EDGE / width
    top = 1 - EDGE / total
    figure.text(left, top, title, va="top", fontsize=11, fontweight="bold")
    figure.text(
        left, top - title_lines * LINE / total, "\n".join(facts_lines), va="top", fontsize=9, linespacing=1.4
    )
    handles = [
        Line2D([], [], label=labels[name], **styles[name]) if name else Line2D([], [], label=" ", alpha=0)
        for column in columns
        for name in [*column, *[None] * (rows - len(column))]
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
    if notes_lines:
        figure.text(
            left,
            EDGE / 2 / total,
            "\n".join(notes_lines),
            va="bottom",
            fontsize=7.5,
            color="#444444",
            linespacing=1.4,
        )


def _columns(families: Mapping[str, str], fitting: int) -> list[list[str]]:
    """The names in each column of a legend; each family has its own column, if there is room."""
    of_family: dict[str, list[str]] = {}
    for name, family in families.items():
        of_family.setdefault(family, []).append(name)
    if len(of_family) > fitting:
        names = list(families)
        rows = -(-len(names) // fitting)
        return [names[i : i + rows] for i in range(0, len(names), rows)]
    rows = -(-max(map(len, of_family.values())) // (fitting // len(of_family)))
    return [each[i : i + rows] for each in of_family.values() for i in range(0, len(each), rows)]
