"""Download of image datasets: only on request, and only the needed files."""

import shutil
import tarfile
from pathlib import Path

import pytest
from dataset_files import CIFAR, IDX, write_cifar, write_idx

from data.images import cifar, mnist


def refuse_to_download(*args: object, **settings: object) -> None:
    raise AssertionError(f"asked to download {args} {settings}")


@pytest.mark.parametrize("name", IDX)
def test_idx_files_are_downloaded_if_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory, folder = IDX[name]
    asked = []

    def download(url: str, target: Path, md5: str, **_: object) -> None:
        asked.append(target.name)
        assert len(bytes.fromhex(md5)) == 16
        assert url.startswith("https://")
        assert url.endswith(f"/{target.name}")
        assert target.parent == tmp_path / folder / "raw"
        write_idx(tmp_path / "home", folder, zipped=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "home" / folder / "raw" / target.name, target)

    monkeypatch.setattr(mnist, "fetch", download)
    dataset = factory(root=str(tmp_path), download=True)
    assert len(asked) == len(set(asked)) == 4
    assert (len(dataset.train), len(dataset.test)) == (7, 4)


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_files_are_downloaded_if_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    home, root = tmp_path / "home", tmp_path / "root"

    def download(url: str, target: Path, md5: str, **_: object) -> None:
        asked.append((url, md5))
        home.mkdir()
        write_cifar(home, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = CIFAR[name][1]
        with tarfile.open(target, "w:gz") as archive:
            archive.add(home / folder, arcname=folder)
            archive.add(home / folder, arcname="../outside")

    monkeypatch.setattr(cifar, "fetch", download)
    dataset = CIFAR[name][0](root=str(root), download=True)
    ((url, md5),) = asked
    assert url.startswith("https://www.cs.toronto.edu/~kriz/cifar-10") and len(bytes.fromhex(md5)) == 16
    assert len(dataset.test) == 3
    files = [path for path in root.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".bin"}, "the archive goes, and nothing else comes out of it"
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
def test_files_that_are_there_are_not_downloaded(
    zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cifar, mnist):
        monkeypatch.setattr(module, "fetch", refuse_to_download)
    for factory, folder in IDX.values():
        write_idx(tmp_path, folder, zipped)
        assert len(factory(root=str(tmp_path), download=True).train) == 7
    for name, (factory, *_) in CIFAR.items():
        if not zipped:
            write_cifar(tmp_path, name)
            assert len(factory(root=str(tmp_path), download=True).test) == 3


@pytest.mark.parametrize("name", [*IDX, *CIFAR])
def test_nothing_is_downloaded_unasked(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cifar, mnist):
        monkeypatch.setattr(module, "fetch", refuse_to_download)
    with pytest.raises(FileNotFoundError):
        (IDX | CIFAR)[name][0](root=str(tmp_path))
