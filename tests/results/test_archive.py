"""Archives of a study's runs: what they hold, and what they refuse."""

import io
import tarfile
from pathlib import Path

import pytest

from results.__main__ import main
from results.archive import FILES


def run_folder(place: Path, number: int = 0) -> Path:
    place.mkdir(parents=True)
    for name in FILES:
        (place / name).write_text(f"{name} {number}")
    return place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "outputs"
    for number, output in enumerate(("regret", "regret_pilots", "regret")):
        run = run_folder(root / output / "a_name" / f"000{number}", number)
        (run / "checkpoint").mkdir()
        (run / "checkpoint" / "large").write_bytes(b"0" * 100)
    (run_folder(root / "regret" / "a_name" / "0009") / "summary.json").unlink()  # it has not finished
    run_folder(root / "main" / "a_name" / "0001")
    return root


def files_below(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_finished_runs_come_back_without_checkpoints(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file, other = str(tmp_path / "runs.tar.xz"), tmp_path / "other"
    assert main(["archive", "regret", "--root", str(root), "--file", file]) == 0
    assert capsys.readouterr().out == f"3 runs in {file}\n"
    assert main(["archive", "regret", "--root", str(other), "--file", file, "--unpack"]) == 0
    assert capsys.readouterr().out == f"3 runs written to {other}\n"
    expected = {
        name: text
        for name, text in files_below(root).items()
        if name.startswith("regret") and "/0009/" not in name and "checkpoint" not in name
    }
    assert files_below(other) == expected and len(expected) == 12


def test_the_bytes_depend_on_the_runs_alone(root: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["archive", "regret", "--root", str(root), "--file", str(tmp_path / name)]) == 0
        (root / "regret/a_name/0000/config.yaml").touch()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_runs_that_exist_are_kept(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = str(tmp_path / "runs.tar.xz")
    main(["archive", "regret", "--root", str(root), "--file", file])
    changed = root / "regret/a_name/0000/summary.json"
    changed.write_text("newer")
    capsys.readouterr()
    assert main(["archive", "regret", "--root", str(root), "--file", file, "--unpack"]) == 0
    assert capsys.readouterr().out == f"0 runs written to {root}\n" and changed.read_text() == "newer"


def test_without_a_finished_run_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["archive", "regret", "--root", str(tmp_path), "--file", str(tmp_path / "a")]) == 1
    assert capsys.readouterr().err == f"error: no finished run of regret below {tmp_path}\n"
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "name",
    [
        *(
            "/regret/a/b/config.yaml",
            "../regret/a/b/config.yaml",
            "regret/../b/config.yaml",
            "a/b/config.yaml",
        ),
        *("regret/a/b/other.yaml", "regret/a/b/../config.yaml", "regret/a/b/checkpoint/config.yaml"),
    ],
)
def test_other_files_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file, root = tmp_path / "runs.tar.xz", tmp_path / "below" / "outputs"
    with tarfile.open(file, "w:xz") as archive:
        for place in ("regret/a/a/config.yaml", name):
            archive.addfile(tarfile.TarInfo(place), io.BytesIO())
    assert main(["archive", "regret", "--root", str(root), "--file", str(file), "--unpack"]) == 1
    assert "is not a file of a run folder" in capsys.readouterr().err
    assert not root.parent.exists()


def test_links_and_broken_archives_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "runs.tar.xz"
    link = tarfile.TarInfo("regret/a/a/config.yaml")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(file, "w:xz") as archive:
        archive.addfile(link)
    for _ in range(2):
        assert (
            main(["archive", "regret", "--root", str(tmp_path / "o"), "--file", str(file), "--unpack"]) == 1
        )
        assert capsys.readouterr().err.count("\n") == 1
        file.write_bytes(b"no archive")
    assert not (tmp_path / "o").exists()
