"""Colours, dashes and markers of methods in all figures, and text with dollar signs."""

import colorsys
from pathlib import Path

from matplotlib.figure import Figure

from results.figures.scales import Scale, set_scale
from results.figures.style import COLOURS, FAMILIES, OTHER_HUES, colour, dash, line_styles, save
from trainers.identity.identity import Method


def test_a_family_shares_a_hue_and_its_methods_differ_in_dash_and_shade() -> None:
    for family in FAMILIES:
        hues = [colorsys.rgb_to_hls(*_parts(colour(name)))[0] for name in family.methods]
        assert max(hues) - min(hues) < 0.02
        looks = {(colour(name), str(dash(name))) for name in family.methods}
        assert len(looks) == len(family.methods)
        assert len({str(dash(name)) for name in family.methods}) == len(family.methods)
    named = [name for family in FAMILIES for name in family.methods]
    assert len(named) == len(set(named)) == len(COLOURS)
    assert len({family.hue for family in FAMILIES} | set(OTHER_HUES)) == len(FAMILIES) + len(OTHER_HUES)


def test_an_unknown_method_has_a_style_by_its_name() -> None:
    assert (colour("stride"), dash("stride")) == (colour("stride"), dash("stride"))
    looks = {(colour(f"method_{i}"), str(dash(f"method_{i}"))) for i in range(12)}
    assert len(looks) >= 8
    assert colour("stride") not in COLOURS.values()


def _parts(found: str) -> list[float]:
    return [int(found[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def method(compressor: str, target: str | None = None, **settings: object) -> Method:
    target = target or f"compressors.{compressor}.{compressor.title().replace('_', '')}"
    own = {f"compressor.{key}": value for key, value in settings.items() if key != "feedback"}
    lost = {"feedback._target_": "compressors.feedback.no_feedback"} if "feedback" in settings else {}
    return Method((("compressor._target_", target), *own.items(), *lost.items()))


def test_styles_tell_methods_apart_without_colour() -> None:
    methods = [method("top_k", density=density) for density in (0.001, 0.01, 0.1)]
    methods += [
        method("top_k", density=0.01, feedback="none"),
        method("none", "compressors.none.NoCompression"),
    ]
    methods.append(method("new", k=3))
    styles = line_styles(methods, marked=True)
    assert list(styles) == [each.label for each in methods]
    assert len({style["marker"] for style in styles.values()}) == len(methods)
    shades = [sum(int(styles[m.label]["color"][i : i + 2], 16) for i in (1, 3, 5)) for m in methods[:3]]
    assert shades == sorted(shades) and len(set(shades)) == 3
    assert styles["top_k, density 0.01, no feedback"]["markerfacecolor"] == "white"


def test_a_compressors_colour_does_not_depend_on_the_others() -> None:
    new, others = method("new", k=3), [method("old", k=1), method("top_k", density=0.1)]
    alone = line_styles([new])["new, k 3"]["color"]
    among = line_styles([*others, new])["new, k 3"]["color"]
    assert alone == among


def test_dollars_are_drawn_as_they_are_and_axes_keep_their_powers(tmp_path: Path) -> None:
    figure = Figure()
    plain, named = figure.subplots(1, 2)
    plain.plot([1, 2], [1e-9, 1e9], label="$x^$")
    plain.set(title="$x^$", xlabel=r"\$ $\frac$")
    set_scale(plain, "y", Scale(True, (1e-9, 1e9)))
    plain.legend()
    named.set_xticks([0, 1], ["$a_$", "b"])
    figure.text(0, 0, "$x^$")
    save(figure, tmp_path / "figure", pdf=True)  # raises ValueError where $x^$ is taken for a formula
    assert plain.title.get_text() == "$x^$"
    powers = [label.get_text() for label in plain.get_yticklabels()]
    assert powers and all(power.startswith("10") for power in powers)
    assert not any(label.get_parse_math() for label in named.get_xticklabels())
