"""The report's HTML page: contents, escaping, equal bytes for equal runs."""

import json
import re
import shutil
from pathlib import Path

import plotly.graph_objects as go
import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.compare.statistics import mean_and_interval
from results.read.folders import read_runs
from results.report.axes import plain
from results.report.facts import pages_of, series_of
from results.report.html_page import in_script
from results.report.interactive_curves import MOST_POINTS
from results.report.interactive_figures import figures_of

main = command_of_results("report")

HOSTILE = "<script>hacked=1</script><img src=x onerror=hacked=1>%{x}"


def page_of(*outputs: Path, to: Path, arguments: tuple[str, ...] = ()) -> str:
    assert main([*map(str, outputs), "--to", str(to), *arguments]) == 0
    return to.read_text(encoding="utf-8")


def body_of(page: str) -> str:
    """The visible part of a page, without plotly's JavaScript, which is last."""
    return page[: page.index('<script type="application/json"')]


def figures_in(page: str) -> dict[str, dict]:
    text = page.split('<script type="application/json" id="figures">')[1]
    return json.loads(text[: text.index("</script>")])


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Three methods, two seeds each; hard_threshold at three thresholds."""
    for seed in (0, 1):
        accuracy = {"test/accuracy": 0.9 + 0.01 * seed}
        write_run(tmp_path / "runs", compressor="none", seed=seed, summary=accuracy)
        write_run(tmp_path / "runs", compressor="top_k", seed=seed, summary=accuracy)
        for threshold in (0.001, 0.01, 0.1):
            write_run(
                tmp_path / "runs",
                compressor="hard_threshold",
                seed=seed,
                settings={"threshold": threshold},
                summary=accuracy | {"comm/link_bytes_sent_total": 1 / threshold},
            )
    return tmp_path / "runs"


def test_page_says_what_was_asked_and_run(output: Path, tmp_path: Path) -> None:
    text = body_of(page_of(output, to=tmp_path / "page.html"))
    assert (
        "How do hard_threshold, none and top_k compare in quality, bytes on the link and total error" in text
    )
    assert "as compressor.threshold varies?" in text
    assert "10 finished, 5 methods and settings" in text
    assert "0.001, 0.01, 0.1" in text and "aaaaaaaaaa (10 runs)" in text
    assert "a processor, 2 cores, Python 3.11.7, torch 2.13.0" in text
    assert "90.50 (2 seeds)" in text  # the accuracies 90 and 91, in %
    assert text.count('class="run"') == 10 and "python run.py compressor=top_k" in text
    assert "compressor.threshold: 0.001" in text and "_target_" not in text
    asked = body_of(
        page_of(output, to=tmp_path / "asked.html", arguments=("--title", "A <T>", "--question", "Why?"))
    )
    assert "<h1>A &lt;T&gt;</h1>" in asked and '<p class="question">Why?</p>' in asked


def test_page_needs_no_network(output: Path, tmp_path: Path) -> None:
    text = page_of(output, to=tmp_path / "page.html")
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", text)
    assert "default-src 'none'" in text and "'unsafe-inline'" not in text.split("style-src")[0]


def test_same_runs_give_the_same_bytes_wherever_they_lie(output: Path, tmp_path: Path) -> None:
    first = page_of(output, to=tmp_path / "first.html")
    elsewhere = tmp_path / "elsewhere" / "runs"
    shutil.copytree(output, elsewhere)
    write_run(elsewhere, seed=7, summary={"status": "failed", "error": "a reason"})
    write_run(output, seed=7, summary={"status": "failed", "error": "a reason"})
    second = page_of(elsewhere, to=tmp_path / "second.html")
    assert first != second and second == page_of(output, to=tmp_path / "third.html")


def test_untrusted_text_stays_text(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", name=HOSTILE, trainer={"note": HOSTILE}, settings={"note": HOSTILE})
    write_run(tmp_path / "runs", name=HOSTILE, seed=1, summary={"status": HOSTILE})
    page = page_of(tmp_path / "runs", to=tmp_path / "page.html", arguments=("--question", HOSTILE))
    assert "<img" not in body_of(page) and "<script>hacked" not in page
    assert page.count("</script>") == 3  # the figures' data, plotly, the page's own script
    names = [trace["name"] for figure in figures_in(page).values() for trace in figure["data"]]
    assert names and all("<" not in name and "{" not in name for name in names)
    assert any("&lt;script&gt;" in name for name in names)


def test_text_for_plotly_and_for_scripts() -> None:
    assert plain("<b>%{y}</b> & \"'") == "&lt;b&gt;%&#123;y}&lt;/b&gt; &amp; \"'"
    text = in_script({"a": "</script><!--\u2028"})
    assert "<" not in text and "\u2028" not in text and json.loads(text) == {"a": "</script><!--\u2028"}


def test_a_run_without_environment_or_quality_is_shown(tmp_path: Path) -> None:
    bare = {"test/accuracy": None, "test/loss": None, "train/loss": None, "layers": None}
    path = write_run(
        tmp_path / "runs", records=[{"step": 1}], summary=bare | {"compression/density_mean": 0.1}
    )
    (path / "environment.json").unlink()
    text = body_of(page_of(tmp_path / "runs", to=tmp_path / "page.html"))
    assert "not recorded" in text and "unknown (1 run)" in text
    assert "accuracy" not in text and ">compression ratio<" not in text
    assert "average density, %" in text


def test_every_run_is_a_point_that_leads_to_it(output: Path) -> None:
    pages = pages_of(read_runs([output]), [output])
    (series,) = series_of(pages).values()
    figures = figures_of(series)
    for figure in figures:
        go.Figure(data=figure.data, layout=figure.layout)  # plotly refuses unknown properties
    quality = figures[0]
    assert quality.title == "Test accuracy against MB that left a worker"
    small = [trace for trace in quality.data if trace.get("showlegend") is False and "customdata" in trace]
    assert sorted(key for trace in small for key in trace["customdata"]) == sorted(p.key for p in pages)
    (means,) = (t for t in quality.data if t["name"] == "hard_threshold" and "showlegend" not in t)
    assert means["x"] == [1e-5, 1e-4, 1e-3] and means["mode"] == "lines+markers"
    assert all(len(keys.split()) == 2 for keys in means["customdata"])


def test_curves_are_thin_and_keep_their_ends(tmp_path: Path) -> None:
    steps = range(1, 2001)
    for seed in (0, 1, 2):
        records = [{"step": step, "train/loss": 1 + seed + 1 / step} for step in steps]
        write_run(tmp_path, seed=seed, records=records)
    (series,) = series_of(pages_of(read_runs([tmp_path]), [tmp_path])).values()
    (loss,) = (figure for figure in figures_of(series) if figure.title == "Training loss against steps")
    bars, dots, mean = loss.data
    assert MOST_POINTS / 2 < len(mean["x"]) <= MOST_POINTS and (mean["x"][0], mean["x"][-1]) == (1, 2000)
    at = mean["x"].index(bars["x"][0])
    middle, half = mean_and_interval([1.0, 2.0, 3.0])  # as in python -m results figures
    low, high = loss.data[0]["y"][:2]
    assert (low, high) == pytest.approx((mean["y"][at] - half, mean["y"][at] + half), rel=1e-3)
    assert mean["y"][0] == middle + 1
    assert dots["y"][:3] == pytest.approx([mean["y"][at] + shift for shift in (-1, 0, 1)], rel=1e-3)
    assert mean["meta"] == "run-1 run-2 run-3"
    assert bars["legendgroup"] == dots["legendgroup"] == mean["legendgroup"]


def test_a_step_without_a_metric_has_no_point(tmp_path: Path) -> None:
    records = [{"step": step} | ({"train/loss": 1.0} if step != 2 else {}) for step in (1, 2, 3)]
    for seed in (0, 1):
        write_run(tmp_path / "runs", seed=seed, records=records)
    (series,) = series_of(pages_of(read_runs([tmp_path / "runs"]), [tmp_path / "runs"])).values()
    (loss,) = (figure for figure in figures_of(series) if figure.title == "Training loss against steps")
    assert [line["x"] for line in loss.data if line["mode"] == "lines"] == [[1, 3]]
    page = page_of(tmp_path / "runs", to=tmp_path / "page.html")
    assert "NaN" not in json.dumps(figures_in(page)) and 'data-sort="nan"' not in page


def test_a_seed_that_sends_nothing_in_a_step_is_no_error(tmp_path: Path) -> None:
    """Its dot is at 0, which the logarithmic axis of the others does not show."""
    for seed, densities in enumerate(((0.1, 0.01, 0.001), (0.1, 0.0, 0.0))):
        steps = zip((1, 2, 3), densities, strict=True)
        records = [{"step": step, "compression/density": density} for step, density in steps]
        write_run(tmp_path / "runs", seed=seed, records=records)
    figures = figures_in(page_of(tmp_path / "runs", to=tmp_path / "page.html")).values()
    (axis,) = (f["layout"]["yaxis"] for f in figures if "density, %" in f["layout"]["yaxis"]["title"]["text"])
    assert axis["type"] == "log" and axis["dtick"] == "D2"


def test_a_run_that_cannot_be_shown_is_named_on_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    write_run(tmp_path / "runs", seed=1, summary={"test/accuracy": float("nan")})
    page = body_of(page_of(tmp_path / "runs", to=tmp_path / "page.html"))
    assert "summary.json holds a number that is not finite" in page
    assert page.count('class="run"') == 1


def test_every_run_says_how_to_run_it_alone(tmp_path: Path) -> None:
    for seed, overrides in enumerate((["compressor=top_k", "seed=0", "name=a b"], None)):
        path = write_run(tmp_path, seed=seed) / "environment.json"
        found = json.loads(path.read_text()) | {"command": ["run.py", "-m", "seed=0,1"]}
        path.write_text(json.dumps(found | ({"overrides": overrides} if overrides else {})))
    first, second = pages_of(read_runs([tmp_path]), [tmp_path])
    assert first.command == "python run.py compressor=top_k seed=0 'name=a b'"
    assert second.command == "not recorded; a job of python run.py -m seed=0,1"
