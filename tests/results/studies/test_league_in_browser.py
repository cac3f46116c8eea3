"""The league's interactive page in Chromium, without the site's theme: predicted times, commands of marks."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from docs_pages import ROOT

sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
offline = pytest.importorskip("plotly.offline", reason="needs plotly: pip install plotly")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
LOCAL, DATA = (
    json.loads((ROOT / f"results/pages/{study}/{study}.json").read_text()) for study in ("local", "league")
)
DATA["tasks"] = LOCAL["tasks"] | DATA["tasks"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page; at its end it must have written no message and asked no host."""
    folder = tmp_path_factory.mktemp("site")
    data = json.dumps(DATA).replace("<", "\\u003c")
    script, style = ((ROOT / "docs" / name).as_uri() for name in ("league.js", "league.css"))
    (folder / "plotly.js").write_text(offline.get_plotlyjs())
    (folder / "page.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><link rel="stylesheet" href="{style}">'
        f'<body><div id="league"></div>'
        f'<script type="application/json" id="league-data">{data}</script>'
        f'<script src="plotly.js"></script><script src="{script}"></script>'
    )
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.extend([request.url] * request.url.startswith("http")))
        page.goto((folder / "page.html").as_uri())
        page.wait_for_selector("#league[data-ready] .legend")
        yield page
        assert said == []
        browser.close()


def seconds(task: str, one: dict[str, Any], rate: float) -> float:
    link = DATA["latency_seconds"] * one["rounds"] + 8 * one["step_bytes"] / rate
    return DATA["tasks"][task]["compute_seconds"] + one["compression_seconds"] + link


@pytest.mark.parametrize("task", DATA["tasks"])
@pytest.mark.parametrize("power", [7, 10])
def test_the_slider_turns_bytes_into_predicted_time(page: Any, task: str, power: int) -> None:
    page.locator(f"input[value={task}]").check()
    page.locator("input[value=time]").check()
    page.locator("#league-rate").fill(str(power))
    told = DATA["tasks"][task]
    drawn = page.evaluate("document.getElementById('league-figure').data[0].x")
    others = [one for one in told["settings"] if one["method"] != "none"]
    expected = [told["steps"] * seconds(task, one, 10.0**power) for one in others]
    assert drawn == pytest.approx(expected)
    reached = [one for one in told["settings"] if one["steps_to_target"] is not None]
    first = min(reached, key=lambda one: one["steps_to_target"] * seconds(task, one, 10.0**power))
    assert f"is reached first by {first['method']} (" in page.locator("#league-first").inner_text()


def test_bytes_do_not_depend_on_the_slider(page: Any) -> None:
    page.locator("input[value=cifar10]").check()
    page.locator("input[value=bytes]").check()
    x = "document.getElementById('league-figure').data[0].x"
    before = page.evaluate(x)
    page.locator("#league-rate").fill("7")
    assert page.evaluate(x) == before
    others = [one for one in DATA["tasks"]["cifar10"]["settings"] if one["method"] != "none"]
    assert before == pytest.approx([one["sent_bytes"] / 1e6 for one in others])


def test_a_method_and_a_click_show_the_commands(page: Any) -> None:
    page.locator("input[value=cifar10]").check()
    own = [one["command"] for one in DATA["tasks"]["cifar10"]["settings"] if one["method"] == "top_k"]
    page.locator("#league-method").select_option("top_k")
    assert page.locator("#league-details code").all_inner_texts() == own
    dense = page.locator("#league-figure .trace").last.locator("path.point")
    dense.scroll_into_view_if_needed()
    box = dense.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    (shown,) = page.locator("#league-details code").all_inner_texts()
    assert "compressor=none" in shown


def test_the_page_fits_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    right_of = "[...document.querySelectorAll('#league-figure {}')].map(e => e.getBoundingClientRect().right)"
    texts, cut = (page.evaluate(right_of.format(name)) for name in (".legendtext", ".legend .bg"))
    assert max(texts) <= cut[0]
    page.set_viewport_size({"width": 1280, "height": 720})
