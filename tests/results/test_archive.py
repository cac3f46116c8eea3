"""Archives of a study's runs: contents, unpacking, refused files, and the pages that follow from them."""

import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from run_folders import write_run

from results.__main__ import main
from results.archive import FILES, owner_of
from results.read.folders import read_runs
from results.studies.catalogue import STUDIES, load
from results.studies.kit import ROOT

PAGES = ROOT / "results" / "pages"
LARGE = 200_000  # bytes of an archive whose page takes seconds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "outputs"
    for output, seed in (("lambda_vs_k", 0), ("lambda_vs_k_pilots", 1), ("lambda_vs_k", 2)):
        run = write_run(root / output, seed=seed)
        (run / "checkpoint").mkdir()
        (run / "checkpoint" / "large").write_bytes(b"0" * 100)
    (write_run(root / "lambda_vs_k", seed=9) / "summary.json").unlink()  # an unfinished run has no summary
    write_run(root / "main")
    return root


def finished(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.glob("lambda_vs_k*/*/*/summary.json"))


def files_below(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_finished_runs_come_back_without_checkpoints(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = replace(load("lambda_vs_k"), curves=None)  # its page reads all metrics of all records
    monkeypatch.setattr("results.archive.load", lambda name: study)
    file, other = str(tmp_path / "runs.tar.xz"), tmp_path / "other"
    assert main(["archive", "lambda_vs_k", "--root", str(root), "--file", file]) == 0
    assert capsys.readouterr().out == f"3 runs in {file}\n"
    assert main(["archive", "lambda_vs_k", "--root", str(other), "--file", file, "--unpack"]) == 0
    assert capsys.readouterr().out == f"3 runs written to {other}\n"
    runs = finished(root)
    assert [run.relative_to(root) for run in runs] == [run.relative_to(other) for run in finished(other)]
    for run in runs:
        back = files_below(other / run.relative_to(root))
        if "pilots" not in str(run):
            assert back == {name: (run / name).read_text() for name in FILES}


def test_a_pilot_keeps_its_last_record(root: Path, tmp_path: Path) -> None:
    """The unpacked pilot is read as a finished run with the same summary, except for the checksums."""
    file, other = str(tmp_path / "runs.tar.xz"), tmp_path / "other"
    main(["archive", "lambda_vs_k", "--root", str(root), "--file", file])
    main(["archive", "lambda_vs_k", "--root", str(other), "--file", file, "--unpack"])
    (before,), (after,) = (read_runs([place / "lambda_vs_k_pilots"]) for place in (root, other))
    assert len(before.records) > 1 and len(after.records) == 1
    assert after.records.iloc[-1].dropna().to_dict() == before.records.iloc[-1].dropna().to_dict()
    both = [{key: v for key, v in run.summary.items() if key != "checksums"} for run in (before, after)]
    assert both[0] == both[1] and after.id == before.id


def test_records_keep_the_metrics_that_the_page_reads(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = replace(load("lambda_vs_k"), curves=("train/",))
    monkeypatch.setattr("results.archive.load", lambda name: study)
    file, other = str(tmp_path / "runs.tar.xz"), tmp_path / "other"
    main(["archive", "lambda_vs_k", "--root", str(root), "--file", file])
    main(["archive", "lambda_vs_k", "--root", str(other), "--file", file, "--unpack"])
    before, after = (read_runs([place / "lambda_vs_k"])[0] for place in (root, other))
    kept = after.records.iloc[:-1].dropna(axis=1, how="all").columns
    assert set(kept) == {"step", "epoch", "train/loss", "train/learning_rate"} & set(before.records.columns)
    assert after.curve("train/loss").equals(before.curve("train/loss"))
    assert after.records.iloc[-1].to_dict() == before.records.iloc[-1].to_dict()


def test_the_bytes_depend_on_the_runs_alone(root: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["archive", "lambda_vs_k", "--root", str(root), "--file", str(tmp_path / name)]) == 0
        (finished(root)[0] / "config.yaml").touch()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_runs_of_another_study_are_in_its_own_archive(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for output in ("league", "league_tuning", "cifar10", "why"):  # all read by the page of the last
        write_run(tmp_path / output)
    assert main(["archive", "why", "--root", str(tmp_path), "--file", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.startswith("1 runs ")


def test_runs_that_exist_are_kept(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = str(tmp_path / "runs.tar.xz")
    main(["archive", "lambda_vs_k", "--root", str(root), "--file", file])
    changed = finished(root)[0] / "summary.json"
    changed.write_text("newer")
    capsys.readouterr()
    assert main(["archive", "lambda_vs_k", "--root", str(root), "--file", file, "--unpack"]) == 0
    assert capsys.readouterr().out == f"0 runs written to {root}\n" and changed.read_text() == "newer"


def test_an_archive_loses_no_run(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["archive", "lambda_vs_k", "--root", str(root), "--file", str(tmp_path / "a")]
    assert main(words) == 0
    before = (tmp_path / "a").read_bytes()
    shutil.rmtree(finished(root)[0])
    assert main(words) == 1
    said = (
        f"error: {tmp_path / 'a'} has 1 runs that are not below {root}: unpack it there, or remove it, first"
    )
    assert capsys.readouterr().err == f"{said}\n"
    assert (tmp_path / "a").read_bytes() == before


def test_without_a_finished_run_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["archive", "lambda_vs_k", "--root", str(tmp_path), "--file", str(tmp_path / "a")]) == 1
    assert capsys.readouterr().err == f"error: no finished run of lambda_vs_k below {tmp_path}\n"
    assert not (tmp_path / "a").exists()


def test_a_finished_study_can_only_be_unpacked(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["archive", "small", "--unpack", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(f" runs written to {tmp_path}\n")
    assert main(["archive", "small", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: the study small is finished: ")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "/lambda_vs_k/a/b/config.yaml",
            "../lambda_vs_k/a/b/config.yaml",
            "lambda_vs_k/../b/config.yaml",
            "a/b/config.yaml",
        ),
        *(
            "lambda_vs_k/a/b/other.yaml",
            "lambda_vs_k/a/b/../config.yaml",
            "lambda_vs_k/a/b/checkpoint/config.yaml",
        ),
    ],
)
def test_other_files_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file, root = tmp_path / "runs.tar.xz", tmp_path / "below" / "outputs"
    with tarfile.open(file, "w:xz") as archive:
        for place in ("lambda_vs_k/a/a/config.yaml", name):
            archive.addfile(tarfile.TarInfo(place), io.BytesIO())
    assert main(["archive", "lambda_vs_k", "--root", str(root), "--file", str(file), "--unpack"]) == 1
    assert "is not a file of a run folder" in capsys.readouterr().err
    assert not root.parent.exists()


def test_links_and_broken_archives_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "runs.tar.xz"
    link = tarfile.TarInfo("lambda_vs_k/a/a/config.yaml")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(file, "w:xz") as archive:
        archive.addfile(link)
    for _ in range(2):
        assert (
            main(["archive", "lambda_vs_k", "--root", str(tmp_path / "o"), "--file", str(file), "--unpack"])
            == 1
        )
        assert capsys.readouterr().err.count("\n") == 1
        file.write_bytes(b"no archive")
    assert not (tmp_path / "o").exists()


def test_a_flipped_bit_is_one_line(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "runs.tar.xz"
    assert main(["archive", "lambda_vs_k", "--root", str(root), "--file", str(file)]) == 0
    whole = file.read_bytes()
    for place in range(8, len(whole), len(whole) // 16):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        capsys.readouterr()
        arguments = ["--root", str(tmp_path / "o"), "--file", str(file), "--unpack"]
        assert main(["archive", "lambda_vs_k", *arguments]) == 1, place
        assert capsys.readouterr().err.count("\n") == 1, place
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "study",
    [
        pytest.param(name, marks=[pytest.mark.slow] if path.stat().st_size > LARGE else [])
        for path in sorted(PAGES.glob("*/runs.tar.xz"))
        if (name := path.parent.name) in STUDIES
    ],
)
def test_a_page_follows_from_its_archive(study: str, tmp_path: Path) -> None:
    outputs, page = tmp_path / "outputs", tmp_path / f"{study}.md"
    for owner in {study, *map(owner_of, load(study).outputs)} - {None}:
        assert main(["archive", owner, "--unpack", "--root", str(outputs)]) == 0
    words = ["study", study, "--root", str(outputs), "--table", str(page), "--figures", str(tmp_path)]
    assert main(words) == 0
    kept = [path for ending in ("md", "json") for path in (PAGES / study).glob(f"{study}.{ending}")]
    for path in kept:
        assert (tmp_path / path.name).read_text() == path.read_text(), path.name
