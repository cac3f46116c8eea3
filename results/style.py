"""One look for all figures: the same colour for a method everywhere, told apart in grey by its line."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Okabe and Ito's colours, which the colour-blind can tell apart
COLOURS = {
    "none": "#000000",
    "hard_threshold": "#0072B2",
    "top_k": "#D55E00",
    "random_k": "#009E73",
    "random_block": "#CC79A7",
}
OTHER_COLOURS = ("#E69F00", "#56B4E9", "#F0E442")
DASHES = {"none": (0, (1, 1)), "hard_threshold": "solid", "top_k": (0, (5, 2)), "random_k": (0, (6, 2, 1, 2))}
DASHES |= {"random_block": (0, (3, 2, 1, 2, 1, 2))}
VARIANT_WIDTHS = (1.8, 3.0, 1.0, 4.2)  # lines of one method with several settings


def line_styles(methods: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Matplotlib's arguments per method, from pairs (method with its settings, compressor)."""
    styles, seen = {}, {}
    for method, compressor in methods:
        variant = seen[compressor] = seen.get(compressor, -1) + 1
        others = [c for c in seen if c not in COLOURS]
        colour = COLOURS.get(compressor) or OTHER_COLOURS[others.index(compressor) % len(OTHER_COLOURS)]
        styles[method] = {
            "color": colour,
            "linestyle": DASHES.get(compressor, "dashdot"),
            "linewidth": VARIANT_WIDTHS[variant % len(VARIANT_WIDTHS)],
        }
    return styles


def save(figure: Any, stem: Path) -> list[Path]:
    """PNG and PDF, the same bytes for the same figure: without a date inside."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    figure.savefig(paths[0], dpi=150, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return paths
