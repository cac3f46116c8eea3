"""Common code of all studies: where pages are written, and missing runs."""

from pathlib import Path

import pytest
from page_headers import parse
from results_commands import command_of_results
from run_folders import write_run

from results.studies import catalogue, kit
from results.studies.kit import Option, Study

main = command_of_results("study", "regret")


def page(runs: list, *further: object) -> str:
    return f"# A page\n\n{len(runs)} runs, {[len(each) for each in further if isinstance(each, list)]}.\n"


STUDY = Study(
    name="regret",
    question="How many runs?",
    page=page,
    outputs=("a", "b"),
    option=Option(name="--beside", help="further runs", output="c"),
    table="table.md",
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with runs of a study below ``outputs``."""
    for output, seeds in (("a", (0, 1)), ("b", (2,)), ("c", (3, 4, 5))):
        for seed in seeds:
            write_run(tmp_path / "outputs" / output, seed=seed)
    monkeypatch.setattr(kit, "ROOT", tmp_path)
    monkeypatch.setattr(catalogue, "load", lambda name: STUDY)
    return tmp_path


def test_runs_of_the_sweeps_make_the_pages_of_the_repository(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(root / "outputs")]) == 0
    folder = root / "results/pages/regret"
    text = (folder / "regret.md").read_text()
    assert "# A page\n\n3 runs, [3].\n\n## Made by\n" in text
    made = parse(text)
    assert (made.command, made.seeds) == ("make regret", (0, 1, 2, 3, 4, 5))
    assert "`python -m results table outputs/a outputs/b`" in (folder / "table.md").read_text()
    written = [folder / "table.md", folder / "regret.md"]
    assert capsys.readouterr().out.splitlines()[-2:] == list(map(str, written))


def test_other_runs_leave_the_repository_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(root / "outputs/c")]) == 0
    assert "\n\n3 runs, [0].\n" in capsys.readouterr().out
    assert main([str(root / "outputs/c"), "--beside", str(root / "outputs/a")]) == 0
    assert "\n\n3 runs, [2].\n" in capsys.readouterr().out
    assert main([str(root / "outputs/c"), "--table", str(root / "elsewhere/page.md")]) == 0
    assert sorted(path.name for path in (root / "elsewhere").iterdir()) == ["page.md", "table.md"]
    assert not (root / "results").exists()


def test_runs_that_are_missing_are_one_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(root / "nowhere")]) == 1
    assert capsys.readouterr().err == f"error: no folder {root / 'nowhere/a'}\n"
    (root / "empty").mkdir()
    assert main([str(root / "empty")]) == 1
    assert capsys.readouterr().err == f"error: no finished run in {root / 'empty'}\n"
    assert not (root / "results").exists()
