"""One look for all figures."""

from pathlib import Path

from results.style import COLOURS, family, in_order, line_styles


def test_every_compressor_has_a_colour_of_its_own() -> None:
    shipped = {path.stem for path in (Path(__file__).parents[2] / "conf" / "compressor").glob("*.yaml")}
    assert shipped <= set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_styles_tell_methods_apart_without_colour() -> None:
    methods = [(f"top_k, density {density:g}", "top_k") for density in (0.001, 0.01, 0.1)]
    methods += [("top_k, density 0.01, no feedback", "top_k"), ("none", "none"), ("new, k 3", "new")]
    styles = line_styles(methods, marked=True)
    assert list(styles) == [method for method, _ in methods]
    assert len({style["marker"] for style in styles.values()}) == len(methods)
    shades = [sum(int(styles[m]["color"][i : i + 2], 16) for i in (1, 3, 5)) for m, _ in methods[:3]]
    assert shades == sorted(shades) and len(set(shades)) == 3
    assert styles["top_k, density 0.01, no feedback"]["markerfacecolor"] == "white"


def test_a_compressors_colour_does_not_depend_on_the_others() -> None:
    alone = line_styles([("new, k 3", "new")])["new, k 3"]["color"]
    among = line_styles([("old, k 1", "old"), ("none", "none"), ("new, k 3", "new")])["new, k 3"]["color"]
    assert alone == among


def test_methods_in_the_order_of_their_numbers() -> None:
    methods = [f"top_k, density {density}" for density in ("0.1", "1e-05", "0.001")]
    assert in_order(methods) == [methods[1], methods[2], methods[0]]
    assert {family(method) for method in methods} == {"top_k"}
    assert family("top_k, density 0.1, no feedback") == "top_k, no feedback"
