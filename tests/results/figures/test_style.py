"""One look for all figures."""

from pathlib import Path

from matplotlib.figure import Figure

from results.figures.style import COLOURS, line_styles, save
from trainers.records.identity import Method


def test_every_compressor_has_a_colour_of_its_own() -> None:
    shipped = {path.stem for path in (Path(__file__).parents[3] / "conf" / "compressor").glob("*.yaml")}
    assert shipped <= set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)


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


def test_methods_in_the_order_of_their_numbers() -> None:
    methods = [method("top_k", density=density) for density in (0.1, 1e-05, 0.001)]
    assert sorted(methods, key=lambda each: each.order) == [methods[1], methods[2], methods[0]]
    assert {each.family for each in methods} == {"top_k"}
    assert method("top_k", density=0.1, feedback="none").family == "top_k, no feedback"


def test_dollars_are_drawn_as_they_are_and_axes_keep_their_powers(tmp_path: Path) -> None:
    figure = Figure()
    plain, named = figure.subplots(1, 2)
    plain.plot([1, 2], [1e-9, 1e9], label="$x^$")
    plain.set(title="$x^$", xlabel=r"\$ $\frac$", yscale="log")
    plain.legend()
    named.set_xticks([0, 1], ["$a_$", "b"])
    figure.text(0, 0, "$x^$")
    save(figure, tmp_path / "figure")  # raises ValueError where $x^$ is taken for a formula
    assert plain.title.get_text() == "$x^$"
    powers = [label for label in plain.get_yticklabels() if label.get_text()]
    assert powers and all(label.get_parse_math() and "10^" in label.get_text() for label in powers)
    assert not any(label.get_parse_math() for label in named.get_xticklabels())
