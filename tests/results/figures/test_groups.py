"""Groups of runs, one for each figure, and their file names."""

from pathlib import Path

from run_folders import write_run

from results.figures.groups import file_stem, groups, unused
from results.read.folders import read_runs


def test_settings_of_one_subject_are_told_apart(tmp_path: Path) -> None:
    for workers in (4, 16):
        for scope in ("layer", "global"):
            write_run(tmp_path, workers=workers, scope=scope)
    found = groups(read_runs([tmp_path]))
    assert [group.stem for group in found] == [
        f"mlp-digits-scope_{scope}-workers_{workers}" for scope in ("global", "layer") for workers in (16, 4)
    ]
    assert found[0].facts == "16 workers, 30 steps, scope global"


def test_file_names_are_short_and_unused() -> None:
    assert file_stem("a/b c=1" + "x" * 500).startswith("a_b_c_1x") and len(file_stem("x" * 500)) == 120
    assert unused("a", {"a", "a-2"}) == "a-3" and unused("b", {"a"}) == "b"
