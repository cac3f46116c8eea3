"""Style of all figures: one colour per method, and line styles that differ in grey."""

import zlib
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

# Okabe and Ito's colours, which the colour-blind can tell apart
COLOURS = {
    "none": "#000000",
    "hard_threshold": "#0072B2",
    "top_k": "#D55E00",
    "random_k": "#009E73",
    "random_block": "#CC79A7",
    "accordion": "#E69F00",
    "reused_threshold": "#332288",  # from here on Paul Tol's muted colours
    "clt_k": "#882255",
    "qsgd": "#44AA99",
    "two_way": "#117733",
    "chain": "#999933",
    "ef_sign": "#AA4499",
    "signsgd": "#CC6677",
    "one_bit": "#661100",
    "terngrad": "#6699CC",
    "natural": "#888888",
}
OTHER_COLOURS = ("#56B4E9", "#8C6D31")
DASHES = {"none": (0, (1, 1)), "hard_threshold": "solid", "top_k": (0, (5, 2)), "random_k": (0, (6, 2, 1, 2))}
DASHES |= {"random_block": (0, (3, 2, 1, 2, 1, 2)), "accordion": (0, (8, 2, 2, 2))}
LINE_WIDTH = 1.8
MARKERS = "osD^vPX<>*hdp8"
DARKEST, LIGHTEST = -0.45, 0.4  # share of black or white in the colours of one compressor's settings
PARAMETERS = {"pdf.fonttype": 42, "svg.hashsalt": "total-error", "font.size": 9}


def apply_style() -> None:
    import matplotlib as mpl

    mpl.rcParams.update(PARAMETERS)


def apply_to_axis(axis: Any) -> None:
    """A pale grid, and no frame above and to the right."""
    axis.grid(alpha=0.3, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


class Named(Protocol):
    """A line of a figure: a method, or a series of a report."""

    label: str
    compressor: str
    family: str  # the label without numbers: what a line through several settings has in common
    order: tuple  # a key for sorting


def line_styles(lines: Iterable[Named], marked: bool = False) -> dict[str, dict[str, Any]]:
    """Matplotlib's arguments per label.

    A compressor has a colour and a dash; several settings of it differ in lightness and marker, and those
    of a second family, such as without feedback, have hollow markers. ``marked``: markers even where
    a compressor has one setting.
    """
    lines = list(lines)
    styles = {}
    for compressor in dict.fromkeys(line.compressor for line in lines):
        own = sorted((line for line in lines if line.compressor == compressor), key=lambda line: line.order)
        families = list(dict.fromkeys(line.family for line in own))
        for line in own:
            alike = [other.label for other in own if other.family == line.family]
            style = {
                "color": _shade(_colour(compressor), alike.index(line.label), len(alike)),
                "linestyle": DASHES.get(compressor, "dashdot"),
                "linewidth": LINE_WIDTH,
            }
            if marked or len(own) > 1:
                style["marker"] = MARKERS[len(styles) % len(MARKERS)]
                style["markersize"] = 6
                if families.index(line.family) % 2:
                    style["markerfacecolor"] = "white"
            styles[line.label] = style
    return {line.label: styles[line.label] for line in lines}


def save(figure: Any, stem: Path) -> list[Path]:
    """PNG of 256 colours and PDF, the same bytes for the same figure: without a date inside.

    Text is drawn as it is, ``$`` included, but for the powers of ten at an axis, which are formulas.
    """
    for text in _words(figure):
        text.set_parse_math(False)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    drawn = BytesIO()
    figure.savefig(drawn, dpi=150, metadata={"Software": None})
    with Image.open(drawn) as image:  # a third of the bytes: these files lie in the repository
        few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(paths[0], dpi=(150, 150), optimize=True)
    figure.savefig(paths[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return paths


def _words(figure: Any) -> list[Any]:
    """Every text of a figure that is no power of ten at a logarithmic axis."""
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    axes = [axis for both in figure.axes for axis in (both.xaxis, both.yaxis)]
    logarithmic = [axis for axis in axes if isinstance(axis.get_major_formatter(), LogFormatter)]
    powers = {label for axis in logarithmic for label in axis.get_ticklabels(which="both")}
    return [text for text in figure.findobj(Text) if text not in powers]


def _colour(compressor: str) -> str:
    """A compressor that has none of its own gets one by its name, the same in all figures."""
    return COLOURS.get(compressor) or OTHER_COLOURS[zlib.crc32(compressor.encode()) % len(OTHER_COLOURS)]


def _shade(colour: str, number: int, of: int) -> str:
    """The colour itself where it is for one setting, else from its darkest to its lightest."""
    if of == 1:
        return colour
    amount = DARKEST + (LIGHTEST - DARKEST) * number / (of - 1)
    towards = 255 if amount > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(part + (towards - part) * abs(amount)) for part in parts]
    return "#" + "".join(f"{part:02X}" for part in mixed)
