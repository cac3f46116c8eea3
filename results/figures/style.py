"""Style of all figures: a hue per family of methods, and dashes and markers that differ in grey."""

import zlib
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from PIL import Image


class Family(NamedTuple):
    """Methods of one idea, which share a hue; shade and dash follow from their order here."""

    hue: str
    methods: tuple[str, ...]


# Hues are Okabe and Ito's and Paul Tol's, which the colour-blind can tell apart. A further method goes to the
# end of its family, so that the others keep their styles.
FAMILIES = (
    Family("#000000", ("none",)),
    Family(
        "#0072B2",  # thresholds, set or estimated
        ("hard_threshold", "reused_threshold", "strom", "sidco", "gaussian_k", "redsync", "adacomp", "micro"),
    ),
    Family("#D55E00", ("top_k", "clt_k", "dgc", "gtop_k", "ok_topk", "arc_top_k", "deft")),
    Family("#009E73", ("random_k", "random_block")),
    Family("#E69F00", ("accordion",)),
    Family("#332288", ("ef_sign", "signsgd", "one_bit")),
    Family("#44AA99", ("qsgd", "terngrad", "natural")),
    Family("#CC79A7", ("powersgd",)),
    Family("#882255", ("ef21", "ef21_sgdm", "diana")),  # around another method
    Family("#999933", ("chain", "two_way")),  # composed of others
)
OTHER_HUES = ("#56B4E9", "#8C6D31", "#666666")
DASHES: tuple[Any, ...] = (
    (0, (1, 1)),
    "solid",
    (0, (5, 2)),
    (0, (6, 2, 1, 2)),
    (0, (8, 2, 2, 2)),
    (0, (3, 1)),
    (0, (3, 2, 1, 2, 1, 2)),
    (0, (9, 2)),
    (0, (2, 1, 2, 3)),
)
MEMBER_SHADES = (
    0.0,
    -0.4,
    0.3,
    -0.2,
    0.45,
    -0.55,
    0.15,
    -0.1,
)  # of a family's hue, by a method's place in it
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


def colour(compressor: str) -> str:
    """The colour of a method, the same in all figures; by its name where no family knows it."""
    for family in FAMILIES:
        if compressor in family.methods:
            place = family.methods.index(compressor)
            return _mixed(family.hue, MEMBER_SHADES[place % len(MEMBER_SHADES)])
    number = _number(compressor)
    shade = MEMBER_SHADES[number // len(OTHER_HUES) % len(MEMBER_SHADES)]
    return _mixed(OTHER_HUES[number % len(OTHER_HUES)], shade)


def dash(compressor: str) -> Any:
    """Matplotlib's line style of a method, another one for each method of a family."""
    for first, family in enumerate(FAMILIES):
        if compressor in family.methods:
            return DASHES[(first + family.methods.index(compressor)) % len(DASHES)]
    return DASHES[_number(compressor) // 7 % len(DASHES)]


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
                "color": _shade(colour(compressor), alike.index(line.label), len(alike)),
                "linestyle": dash(compressor),
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


def _number(name: str) -> int:
    """A number that follows from the name alone, in every process."""
    return zlib.crc32(name.encode())


def _shade(base: str, number: int, of: int) -> str:
    """The colour itself where it is for one setting, else from its darkest to its lightest."""
    return base if of == 1 else _mixed(base, DARKEST + (LIGHTEST - DARKEST) * number / (of - 1))


def _mixed(base: str, amount: float) -> str:
    """The colour with a share of white, or of black where the amount is negative."""
    towards = 255 if amount > 0 else 0
    parts = [int(base[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(part + (towards - part) * abs(amount)) for part in parts]
    return "#" + "".join(f"{part:02X}" for part in mixed)


COLOURS = {method: colour(method) for family in FAMILIES for method in family.methods}
