"""Small valid files in every format that the datasets read."""

import bz2
import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dataset_files import write_cifar, write_idx
from glue_files import write_sst2
from image_files import write_tree
from libsvm_files import write_rows
from PIL import Image

from data.ratings.movielens import EDITIONS


class Format(NamedTuple):
    """``write`` writes a dataset below a root; ``files``, a glob, are those in the format."""

    words: tuple[str, ...]  # command-line overrides that choose the dataset
    write: Callable[[Path], Any]
    files: str


def write_libsvm(root: Path, suffix: str = "", pack: Callable[[bytes], bytes] = bytes) -> None:
    plain = write_rows(root, "few", 20, 4)
    content = plain.read_bytes()
    plain.unlink()
    plain.with_name(f"few{suffix}").write_bytes(pack(content))


def write_text(root: Path, folder: str, name: str) -> None:
    (root / folder).mkdir()
    for split in ("train", "valid", "test"):
        (root / folder / name.format(split)).write_text(" = a title = \n a fine <unk> film .\n" * 40)


def write_file(root: Path) -> None:
    (root / "few.txt").write_text("a fine f\u00edlm .\n" * 40)


def write_ratings(root: Path, name: str) -> None:
    """Ratings of 13 users, each of 20 of 130 items."""
    edition = EDITIONS[name]
    pairs = [(user, 1 + (20 * user + item) % 130) for user in range(1, 14) for item in range(20)]
    lines = [edition.separator.join(map(str, (*pair, 4, time))) for time, pair in enumerate(pairs)]
    path = root / edition.member
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(([edition.header] if edition.header else []) + lines) + "\n")


def write_images(root: Path, suffix: str) -> None:
    for split in ("train", "test"):
        write_tree(root / "few" / split, {"ant": 3, "bee": 3})
        for path in (root / "few" / split).rglob("*.png"):
            with Image.open(path) as image:
                path.unlink()
                image.save(path.with_suffix(f".{suffix}"))


LIBSVM = ("data=libsvm", "data.name=few")
IMAGES = ("data=image_folder", "data.name=few")
WIKITEXT = partial(write_text, folder="wikitext-2", name="wiki.{}.tokens")
PENN = partial(write_text, folder="penn-treebank", name="ptb.{}.txt")
FORMATS = {
    "idx": Format(("data=mnist",), partial(write_idx, folder="MNIST"), "MNIST/raw/*"),
    "idx.gz": Format(
        ("data=fashion_mnist",), partial(write_idx, folder="FashionMNIST", zipped=True), "FashionMNIST/raw/*"
    ),
    "cifar10": Format(("data=cifar10",), partial(write_cifar, name="cifar10"), "cifar-10-batches-bin/*"),
    "cifar100": Format(("data=cifar100",), partial(write_cifar, name="cifar100"), "cifar-100-binary/*"),
    "libsvm": Format(LIBSVM, write_libsvm, "libsvm/*"),
    "libsvm.gz": Format(LIBSVM, partial(write_libsvm, suffix=".gz", pack=gzip.compress), "libsvm/*"),
    "libsvm.bz2": Format(LIBSVM, partial(write_libsvm, suffix=".bz2", pack=bz2.compress), "libsvm/*"),
    "wikitext": Format(("data=wikitext2",), WIKITEXT, "wikitext-2/*"),
    "penn treebank": Format(("data=penn_treebank",), PENN, "penn-treebank/*"),
    "text": Format(("data=text", "data.files=[few.txt]", "data.length=8"), write_file, "few.txt"),
    "masked": Format(
        ("data=wikitext2", "data.objective=masked", "data.max_length=8"), WIKITEXT, "wikitext-2/*"
    ),
    "sst-2": Format(("data=sst2",), write_sst2, "glue/SST-2/*"),
    "vocabulary": Format(("data=sst2",), write_sst2, "bert-base-uncased/*"),
    **{
        f"movielens {name}": Format(
            ("data=movielens", f"data.name={name}"), partial(write_ratings, name=name), EDITIONS[name].member
        )
        for name in EDITIONS
    },
    **{
        f"images {suffix}": Format(IMAGES, partial(write_images, suffix=suffix), "few/t*/*/*")
        for suffix in ("png", "jpg", "bmp", "tif", "webp", "ppm")
    },
}
