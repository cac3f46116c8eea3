"""Headers of pages: writing, reading, and the header of every page in the repository."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from page_headers import FROM_HISTORY, parse
from run_folders import write_run

from results import header
from results.header import CLEAN, MODIFIED, Header
from results.read.folders import read_runs

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "results/pages").glob("*/*.md") if path.parent.name != "gpu")
BENCHMARKS = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
# a deviation, an interval or a time, by which measured numbers on a docs page are found
MEASURED = re.compile(r"\d ± \d|\[([-+]\d[\d.]*|\d+\.\d+), [-+]?\d[\d.]*\]|\d (ms|µs)\b")
OF_MODIFIED_CODE: set[str] = set()  # pages written before such runs were refused, and not updated since
COPIES = {  # a page that describes the numbers of another page has the same header
    "results/pages/accordion/accordion.md": "results/pages/accordion/table.md",
    "results/pages/autolrs/autolrs.md": "results/pages/autolrs/table.md",
    "results/pages/topk_convergence/topk_convergence.md": "results/pages/topk_convergence/table.md",
    "results/pages/lambda_vs_k/table.md": "results/pages/lambda_vs_k/lambda_vs_k.md",
    "docs/papers/three_parameters.md": "results/pages/three_parameters/three_parameters.md",
    "docs/papers/autolrs.md": "results/pages/autolrs/table.md",
}
WORDED = (
    "results/pages/accordion/accordion.md",
    "results/pages/autolrs/autolrs.md",
    "docs/papers/autolrs.md",
    "docs/papers/three_parameters.md",
)
WHOLE = Header(
    command="make all",
    commits=(("a" * 40, CLEAN), ("b" * 40, MODIFIED)),
    machine="a processor, 2 cores, Linux, Python 3.11.7, torch 2.13.0",
    seeds=(0, 1, 2, 5, 6, 7, 8),
    date="2026-01-01",
)


def test_a_header_is_read_as_it_was_written() -> None:
    page = header.at_end("# A page\n\nWords.\n", WHOLE)
    assert parse(page) == WHOLE
    assert "- Seeds: 0, 1, 2, 5 to 8\n" in page
    assert page.startswith("# A page\n\nWords.\n\n## Made by\n\n- Command: `make all`\n")


@pytest.mark.parametrize("name", ["Command", "Commit", "Machine"])
def test_a_missing_fact_is_named(name: str) -> None:
    lines = header.at_end("# A page\n", WHOLE).splitlines()
    page = "\n".join(line for line in lines if not line.startswith(f"- {name}"))
    with pytest.raises(ValueError, match=f"must have {name}, got "):
        parse(page)


@pytest.mark.parametrize(
    ("fact", "wrong"),
    [
        ("Commit", "abcdef0"),
        ("Command", "make all"),
        ("Seeds", "some"),
    ],
)
def test_a_fact_of_another_form_is_refused(fact: str, wrong: str) -> None:
    page = re.sub(rf"- {fact}: .*", f"- {fact}: {wrong}", header.at_end("# A page\n", WHOLE))
    with pytest.raises(ValueError, match=f"header's {fact.lower()}"):
        parse(page)


def test_a_header_of_runs(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    write_run(tmp_path, seed=3, commit="b" * 40)
    write_run(tmp_path, seed=4, commit=None)
    found = header.of_runs(read_runs([tmp_path]), "make some")
    assert found.commits == (("a" * 40, CLEAN), ("b" * 40, CLEAN))
    assert (found.seeds, found.machine) == ((0, 3, 4), WHOLE.machine)
    alone = header.of_runs([run for run in read_runs([tmp_path]) if run.seed == 4], "make some")
    assert "- Commit: not recorded" in alone.lines()


def test_runs_of_modified_code_make_no_page_unless_allowed(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    write_run(tmp_path, seed=1, commit="b" * 40, modified=True)
    runs = read_runs([tmp_path])
    with pytest.raises(ValueError, match="got modified code in 1 of bbbbbbbbbb; --allow-modified"):
        header.of_runs(runs, "make some")
    allowed = header.of_runs(runs, "make some", allow_modified=True)
    assert allowed.commits == (("a" * 40, CLEAN), ("b" * 40, MODIFIED))


def test_a_page_that_is_measured_now_names_this_code() -> None:
    found = header.of_this_tree("python benchmarks/x.py", "a processor")
    page = header.at_end("# A page\n", found)
    assert parse(page) == found
    if (ROOT / ".git").exists():
        head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
        assert found.commits[0][0] == head.stdout.strip()


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT / "results/pages")) for path in PAGES])
def test_every_page_of_results_says_what_made_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = parse(text)
    if found.machine == "not run yet":
        assert not found.commits and "|" not in text, "no table before the runs"
        return
    assert found.seeds and found.commits
    states = {state for _, state in found.commits}
    assert states == ({CLEAN, MODIFIED} if path.name in OF_MODIFIED_CODE else {CLEAN})
    assert_commits_are_ours(found)


@pytest.mark.parametrize("path", BENCHMARKS, ids=[path.name for path in BENCHMARKS])
def test_every_page_of_benchmarks_says_what_made_it(path: Path) -> None:
    found = parse(path.read_text(encoding="utf-8"))
    assert found.commits and {state for _, state in found.commits} <= {CLEAN, FROM_HISTORY}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.date)
    assert_commits_are_ours(found)


def test_docs_pages_with_measured_numbers_say_what_made_them() -> None:
    measured = [path for path in (ROOT / "docs").glob("**/*.md") if MEASURED.search(path.read_text())]
    assert measured
    for path in measured:
        assert_commits_are_ours(parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", WORDED)
def test_spreads_and_intervals_in_words_are_those_of_the_table(page: str) -> None:
    ours, theirs = ((ROOT / path).read_text().replace(",", "") for path in (page, COPIES[page]))
    found = re.findall(r"-?\d[\d.]* ± \d[\d.]*|[-+]?\d[\d.]* \[[-+]?\d[\d.]* [-+]?\d[\d.]*\]", ours)
    assert found
    assert [number for number in found if number not in theirs] == []


@pytest.mark.parametrize("page", COPIES)
def test_words_and_table_are_of_the_same_runs(page: str) -> None:
    ours, theirs = (parse((ROOT / path).read_text()) for path in (page, COPIES[page]))
    assert replace(ours, command="") == replace(theirs, command="")


def assert_commits_are_ours(found: Header) -> None:
    """Assert that the repository has every commit; passes without git's full history."""
    for commit, _ in found.commits:
        git = ["git", "-C", str(ROOT)]
        shallow = subprocess.run(
            [*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True
        )
        if shallow.stdout.strip() == "false":
            known = subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True)
            assert known.returncode == 0, f"{commit} is no commit of this repository"
