"""Style of all figures: a hue per family of methods; dashes and markers are distinct without colour."""

import zlib
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from results.command import writing_over


class Family(NamedTuple):
    """Related methods, which share a hue; shade and dash follow from their order here."""

    hue: str
    methods: tuple[str, ...]


# Hues are Okabe and Ito's and Paul Tol's, which colour-blind readers can distinguish. Add a new method at the
# end of its family, so that the others keep their styles.
FAMILIES = (
    Family("#000000", ("none",)),
    Family(
        "#0072B2",  # thresholds, given or estimated
        ("hard_threshold", "reused_threshold", "strom", "sidco", "gaussian_k", "redsync", "adacomp", "micro"),
    ),
    Family("#D55E00", ("top_k", "clt_k", "dgc", "gtop_k", "ok_topk", "arc_top_k", "deft")),
    Family("#009E73", ("random_k", "random_block")),
    Family("#E69F00", ("accordion",)),
    Family("#332288", ("ef_sign", "signsgd", "one_bit")),
    Family("#44AA99", ("qsgd", "terngrad", "natural")),
    Family("#CC79A7", ("powersgd",)),
    Family("#882255", ("ef21", "ef21_sgdm", "diana")),  # wrappers of other methods
    Family("#999933", ("chain", "two_way", "cocktail")),  # compositions of other methods
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
)  # shades of a family's hue, by a method's position in it
LINE_WIDTH = 1.8
MARKERS = "osD^vPX<>*hdp8"
DARKEST, LIGHTEST = -0.45, 0.4  # share of black or white in the colours of one compressor's settings


def apply_style() -> None:
    import matplotlib as mpl

    mpl.rc("pdf", fonttype=42)
    mpl.rc("svg", hashsalt="total-error")
    mpl.rc("font", size=9)


def apply_to_axis(axis: Any) -> None:
    """Give an axis a pale grid, and no frame at the top and right."""
    axis.grid(alpha=0.3, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


class Styled(NamedTuple):
    """The properties of a line that determine its style."""

    label: str
    compressor: str
    family: str  # the label without numbers, which the points of a line through several settings share
    order: tuple[Any, ...]  # sort key


def colour(compressor: str) -> str:
    """The colour of a method, the same in all figures; a method without family has one from its name."""
    for family in FAMILIES:
        if compressor in family.methods:
            place = family.methods.index(compressor)
            return _mixed(family.hue, MEMBER_SHADES[place % len(MEMBER_SHADES)])
    number = _number(compressor)
    shade = MEMBER_SHADES[number // len(OTHER_HUES) % len(MEMBER_SHADES)]
    return _mixed(OTHER_HUES[number % len(OTHER_HUES)], shade)


def dash(compressor: str) -> Any:
    """Matplotlib's line style of a method; it differs between the methods of a family."""
    for first, family in enumerate(FAMILIES):
        if compressor in family.methods:
            return DASHES[(first + family.methods.index(compressor)) % len(DASHES)]
    return DASHES[_number(compressor) // 7 % len(DASHES)]


def line_styles(lines: Iterable[Styled], marked: bool = False) -> dict[str, dict[str, Any]]:
    """Matplotlib's arguments per label.

    A compressor has a colour and a dash. Its settings differ in lightness and marker; those of a second
    family, such as without feedback, have hollow markers. ``marked``: markers also for a compressor with one
    setting.
    """
    lines = list(lines)
    styles: dict[str, dict[str, Any]] = {}
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


def save(figure: Any, stem: Path, *, pdf: bool = False) -> list[Path]:
    """Save a figure as PNG with 256 colours, also as PDF on demand; equal figures give equal bytes.

    No text is a formula: ``$`` has no special meaning.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
    paths = [stem.with_name(f"{stem.name}.png")]
    drawn = BytesIO()
    figure.savefig(drawn, dpi=150, metadata={"Software": None})
    with Image.open(drawn) as image:  # 256 colours take a third of the bytes in the repository
        few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        with writing_over(paths[0]) as place:
            few.save(place, "PNG", dpi=(150, 150), optimize=True)
    if pdf:
        paths.append(stem.with_name(f"{stem.name}.pdf"))
        dateless = {"CreationDate": None, "Producer": None, "Creator": None}
        with writing_over(paths[1]) as place:
            figure.savefig(place, format="pdf", metadata=dateless)
    return paths


def _number(name: str) -> int:
    """A hash of the name, equal in every process."""
    return zlib.crc32(name.encode())


def _shade(base: str, number: int, of: int) -> str:
    """The colour of setting ``number`` of ``of``, from dark to light; ``base`` for a single setting."""
    return base if of == 1 else _mixed(base, DARKEST + (LIGHTEST - DARKEST) * number / (of - 1))


def _mixed(base: str, amount: float) -> str:
    """The colour mixed with a share of white or, for a negative amount, of black."""
    towards = 255 if amount > 0 else 0
    parts = [int(base[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(part + (towards - part) * abs(amount)) for part in parts]
    return "#" + "".join(f"{part:02X}" for part in mixed)


COLOURS = {method: colour(method) for family in FAMILIES for method in family.methods}
