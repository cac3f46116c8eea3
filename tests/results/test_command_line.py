"""``python -m results``: its commands and their help."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.__main__ import COMMANDS
from results.command import ROOT, hand_out
from results.studies.catalogue import STUDIES
from trainers.launch.stopping import STARTER

main = command_of_results()


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert list(COMMANDS) == [
        "table",
        "figures",
        "report",
        "budget",
        "breakeven",
        "study",
        "archive",
        "deltas",
    ]
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
            f"error: no command 'tables'; there are {', '.join(COMMANDS)}",
        ),
        (["study"], f"error: a study's name comes first; there are {', '.join(STUDIES)}"),
        (["study", "--root", "x"], f"error: a study's name comes first; there are {', '.join(STUDIES)}"),
        (["study", "convexity"], f"error: no study 'convexity'; there are {', '.join(STUDIES)}"),
    ],
)
def test_another_name_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("table x --nothing", "unrecognized arguments: --nothing"),
        ("budget seed=1", "one of the arguments --density --threshold --given is required"),
        ("study league --jobs two", "argument --jobs: invalid int value: 'two'"),
        ("report", "folders with runs are missing"),
    ],
)
def test_an_error_in_the_options_is_one_line(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words.split())
    assert left.value.code == 2
    command = " ".join(word for word in words.split() if word in (*COMMANDS, "league"))
    assert capsys.readouterr().err == f"error: {said} (see: python -m results {command} --help)\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_command_ends_with_the_one_that_started_it() -> None:
    """Here the starter, process 1, is not the parent, as if it had ended before."""
    done = subprocess.run(
        [sys.executable, "-m", "results", "table"], env=os.environ | {STARTER: "1"}, cwd=ROOT
    )
    assert done.returncode == 128 + signal.SIGTERM


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Folders by the name that the refused commands have for them."""
    regret = {"compression/regret": 0.1, "compression/regret_bound": 0.1}
    write_run(tmp_path / "runs")
    write_run(tmp_path / "lone", workers=1, summary=regret | {"comm/link_bytes_sent_total": 0.0})
    (tmp_path / "empty").mkdir()
    return {name.upper(): str(tmp_path / name) for name in ("runs", "lone", "empty")}


ALONE = "workers must be at least 2, got 1: nothing leaves a single worker"
LEAGUE = "study league --allow-modified --root EMPTY"
MODEL = "breakeven --bandwidth 1gbit --workers 2 --model mlp"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("table /nowhere", "no folder /nowhere"),
        ("table EMPTY", "no finished run in EMPTY"),
        ("table RUNS --baseline nothing", "no run of the baseline 'nothing'; there are 'top_k, density"),
        ("table RUNS --wide a.csv --to b", "--to has no effect with --wide and --long"),
        ("table RUNS --conventions --long a.csv", "--long has no effect with --conventions"),
        ("table RUNS --wide a.xlsx", "a table's file must end in .csv or .parquet, got a.xlsx"),
        ("figures /nowhere", "no folder /nowhere"),
        ("figures EMPTY", "no finished run in EMPTY"),
        ("figures RUNS --only pie", "no figure 'pie'; there are quality_density, quality_bytes, "),
        ("figures RUNS --only suboptimality", "nothing to draw in RUNS"),
        ("figures RUNS --only quality_bytes --quality test/beauty", "nothing to draw in RUNS"),
        ("breakeven --bandwidth 1gbit", "breakeven needs --model, or folders with runs"),
        ("breakeven seed=1 --bandwidth 1gbit", "breakeven needs --model, or folders with runs"),
        ("breakeven x seed=1 --bandwidth 1gbit", "seed=1 has no effect on runs"),
        (f"{MODEL} model=lstm", "model=lstm has no effect with --model: give it as --model"),
        (f"{MODEL} workers=4", "workers=4 has no effect with --model: give it as --workers"),
        (
            f"{MODEL} budget.density=0.1",
            "budget.density=0.1 has no effect with --model: give it as --density",
        ),
        (f"{MODEL} nodes=2", "nodes=2 has no effect with --model: give it as --nodes"),
        (f"{MODEL} --inside 1gbit", "--inside has no effect without --nodes"),
        (f"{MODEL} --nodes 3", "--nodes must be at least 2 and divide --workers, got 3"),
        ("budget --density 0", "--density must be > 0, got 0.0"),
        ("budget --threshold -1", "--threshold must be > 0, got -1.0"),
        ("budget --density 1 --to no/x.yaml", "--to must be a .yaml in a folder that is there"),
        ("budget --density 0.1 --runs 0", "--runs must be at least 1, got 0"),
        ("budget --density 0.1 --tolerance nan", "--tolerance must be > 0, got nan"),
        ("budget --given powersgd=x", "--given must be NAME or NAME=VALUE with a value > 0"),
        ("study convex EMPTY", "no finished run in EMPTY"),
        ("study main LONE", ALONE),
        ("study regret LONE", ALONE),
        ("study lambda_vs_k LONE", ALONE),
        ("deltas /nowhere /nowhere", "no file or folder /nowhere"),
        (f"{LEAGUE} --add top_k", "--add takes compressor=NAME, got top_k"),
        (f"{LEAGUE} --task madelon", "--task, --set and --knob need --run or --add"),
        (f"{LEAGUE} --run --knob compressor.every", "--knob needs a single --add"),
        (f"{LEAGUE} --run --jobs 0", "--jobs must be at least 1, got 0"),
        (f"{LEAGUE} data.root=DIR --add compressor=top_k", "take no folder, and overrides after --set"),
    ],
)
def test_a_refusal_is_the_last_line(
    words: str, said: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([places.get(word, word) for word in words.split()]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    for name, place in places.items():
        last = last.replace(place, name)
    assert last.startswith("error: ") and said in last
    assert not (Path(places["RUNS"]) / "figures").exists()


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
