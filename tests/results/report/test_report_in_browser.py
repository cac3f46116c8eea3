"""The report's page in Chromium: console messages, hiding of traces, sorting of tables, links to runs."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from results_commands import command_of_results
from run_folders import write_run

main = command_of_results("report")


sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
HOSTILE = "<script>hacked=1</script><img src=x onerror=hacked=1>"
BYTES = {"none": 120_000.0, "top_k": 9_000.0, "hard_threshold": 80_000.0}  # not in alphabetical order


@dataclass
class Opened:
    """The page, and the browser's messages and requests."""

    page: Any
    file: Path
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs")
    for compressor, sent in BYTES.items():
        for seed in (0, 1):
            summary = {"comm/link_bytes_sent_total": sent + seed, "test/accuracy": 0.9 + 0.01 * seed}
            write_run(output, compressor=compressor, seed=seed, summary=summary)
    write_run(output, name=HOSTILE, settings={"note": HOSTILE}, trainer={"note": HOSTILE})
    assert main([str(output), "--question", HOSTILE]) == 0
    return output / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    """One page for all tests, because loading takes seconds; no test depends on the state left by another."""
    page = browser.new_page()
    opened = Opened(page, report)
    page.on("console", lambda message: opened.messages.append(message.text))
    page.on("pageerror", lambda error: opened.messages.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector("#figure-1 .legend")
    yield opened
    page.close()


def until(page: Any, expression: str, value: Any) -> None:
    """Wait until ``expression`` has ``value``; the page's CSP forbids the eval of Playwright's own wait."""
    for _ in range(100):
        if page.evaluate(expression) == value:
            return
        page.wait_for_timeout(50)
    assert page.evaluate(expression) == value


def figure_of(page: Any, title: str) -> str:
    """The id of the figure with this title in the section of all methods."""
    figures = page.locator("figure").filter(has_text=title).filter(has_text="hard_threshold")
    figures.first.scroll_into_view_if_needed()
    return figures.first.locator(".plot").get_attribute("id")


def centre(page: Any, selector: str) -> tuple[float, float]:
    element = page.locator(selector).first
    element.scroll_into_view_if_needed()
    box = element.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_page_loads_in_silence_and_asks_nobody(opened: Opened) -> None:
    page = opened.page
    for number in range(page.locator(".plot").count()):
        page.locator(".plot").nth(number).scroll_into_view_if_needed()
    until(page, "document.querySelectorAll('.plot:not([data-drawn])').length", 0)
    assert opened.messages == []
    assert opened.requests == [opened.file.as_uri()]
    assert page.evaluate("window.hacked") is None
    assert page.locator("h2", has_text="onerror").count() == 1  # shown as text, not executed


def test_a_click_on_a_head_sorts_by_number(opened: Opened) -> None:
    page = opened.page
    table = page.locator("table.sortable").filter(has_text="top_k, density 0.01").last
    head = table.locator("th", has_text="MB that left a worker").locator("button")

    def methods() -> list[str]:
        return [text.split(",")[0] for text in table.locator("td.method").all_inner_texts()]

    assert methods() == ["hard_threshold", "none", "top_k"]
    head.click()
    assert methods() == ["top_k", "hard_threshold", "none"]
    assert table.locator("th[aria-sort=ascending]").count() == 1
    head.click()
    assert methods() == ["none", "hard_threshold", "top_k"]
    table.locator("th", has_text="method").locator("button").click()
    assert methods() == ["hard_threshold", "none", "top_k"]


def test_a_row_leads_to_its_run(opened: Opened) -> None:
    page = opened.page
    row = page.locator("tr", has_text="top_k, density 0.01").filter(has_text="0.009").first
    row.locator("a", has_text="1").click()
    dialog = page.locator("dialog[open]")
    assert "python run.py compressor=top_k" in dialog.locator(".command").inner_text()
    config = dialog.locator(".config").inner_text()
    assert "name: mlp-digits-top_k" in config and "seed: 1" in config
    dialog.locator("button", has_text="Close").click()
    assert page.locator("dialog[open]").count() == 0


def test_a_point_leads_to_its_run(opened: Opened) -> None:
    page = opened.page
    figure = figure_of(page, "Test accuracy against MB that left a worker")
    page.mouse.click(*centre(page, f"#{figure} .scatterlayer .trace .points path"))
    dialog = page.locator("dialog[open]")
    dialog.wait_for()
    assert dialog.locator("details").count() == 1
    assert "compressor: hard_threshold" in dialog.locator(".config").inner_text()
    page.keyboard.press("Escape")
