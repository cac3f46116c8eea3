"""``python -m results``: its commands and their help."""

from pathlib import Path

import pytest
from results_commands import command_of_results

from results.__main__ import COMMANDS
from results.command import hand_out
from results.studies.catalogue import STUDIES

main = command_of_results()


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert list(COMMANDS) == ["table", "figures", "report", "budget", "breakeven", "study", "archive"]
    assert all(f"\n  {name} " in said for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m results {name} ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [],
            f"error: a command is missing; there are {', '.join(COMMANDS)}",
        ),
        (
            ["tables"],
            "error: no command 'tables'; there are table, figures, report, budget, breakeven, study, archive",
        ),
        (["study"], f"error: a study's name comes first; there are {', '.join(STUDIES)}"),
        (["study", "--root", "x"], f"error: a study's name comes first; there are {', '.join(STUDIES)}"),
        (["study", "convexity"], f"error: no study 'convexity'; there are {', '.join(STUDIES)}"),
    ],
)
def test_another_name_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"{said}\n"


def test_a_page_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, link = tmp_path / "page.md", tmp_path / "link.md"
    link.symlink_to(page)
    hand_out("old", page)
    hand_out("new", link)
    assert page.read_text() == "new" and link.is_symlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trainers.files.atomic.write_all", full)
    with pytest.raises(OSError, match="No space"):
        hand_out("newer", page)
    assert page.read_text() == "new" and sorted(tmp_path.iterdir()) == [link, page]
