"""Download of image datasets: only on request, and only the needed files."""

import shutil
import tarfile
from pathlib import Path

import pytest
from dataset_files import CIFAR, IDX, write_cifar, write_idx

from data.images import cifar, mnist


def refuse_to_download(*args: object, **settings: object) -> None:
    raise AssertionError(f"asked to download {args} {settings}")


MD5 = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    "cifar10": {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    "cifar100": {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
}


@pytest.mark.parametrize("name", IDX)
def test_idx_files_are_downloaded_if_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory, folder = IDX[name]
    asked = {}

    def download(url: str, target: Path, md5: str, **_: object) -> None:
        asked[target.name] = md5
        assert url.startswith("https://")
        assert url.endswith(f"/{target.name}")
        assert target.parent == tmp_path / folder / "raw"
        write_idx(tmp_path / "home", folder, zipped=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "home" / folder / "raw" / target.name, target)

    monkeypatch.setattr(mnist, "fetch", download)
    dataset = factory(root=str(tmp_path), download=True)
    assert asked == MD5[name]
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
    ((archive, md5),) = MD5[name].items()
    assert asked == [(f"https://www.cs.toronto.edu/~kriz/{archive}", md5)]
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
