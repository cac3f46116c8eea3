"""Valid files in every format of the datasets, and hostile changes to them.

Each format has its own damage in addition to the damage of ``file_damage``.
"""

import bz2
import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from dataset_files import write_cifar, write_idx
from file_damage import Damage, gzip_bomb
from glue_files import write_sst2
from libsvm_files import write_rows

from data.ratings.movielens import EDITIONS

TRAINING = ("workers=2", "trainer.batch_size=1", "trainer.steps=1", "trainer.evaluation_batch_size=8")
SMALL_LSTM = ("model=lstm", "model.width=4", "model.layers=1", "schedule=constant")
SMALL_BERT = ("model=bert", "model.positions=64", "schedule=constant")
MLP = ("model=mlp", "model.hidden=[4]")


class Format(NamedTuple):
    """``write`` writes a valid dataset below a root; ``files`` are its files to damage."""

    words: tuple[str, ...]  # command-line overrides of a run that reads the dataset
    write: Callable[[Path], Any]
    files: str  # a glob below the root
    own: dict[str, Damage]


def put(content: bytes | Callable[[bytes], bytes]) -> Damage:
    """Damage that replaces a file's content; a function gets the old content."""

    def damage(path: Path, draw: Random) -> None:
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)

    return damage


# idx and CIFAR


def lengths(*numbers: int, body: int | None = None) -> Damage:
    """Damage: an idx header with these lengths, followed by the old data or by ``body`` zeros."""

    def change(content: bytes) -> bytes:
        header = bytes([0, 0, 8, len(numbers) % 256]) + b"".join(struct.pack(">I", n) for n in numbers)
        return header + (content[4 + 4 * content[3] :] if body is None else bytes(body))

    return put(change)


def zipped(damage: Damage) -> Damage:
    """``damage`` to the content of a gzip file."""

    def damaged(path: Path, draw: Random) -> None:
        path.write_bytes(gzip.decompress(path.read_bytes()))
        damage(path, draw)
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))

    return damaged


IDX = {
    "sample count of 4 thousand millions": lengths(2**32 - 1, 28, 28),
    "lengths whose product is huge": lengths(2**32 - 1, 2**32 - 1, 2**32 - 1),
    "255 dimensions": lengths(*[1] * 255),
    "no dimensions": lengths(),
    "no samples": lengths(0, 28, 28, body=0),
    "images of one row": lengths(7, 1, 784),
    "one image as wide as a model cannot be": lengths(1, 1, 2**26, body=2**26),
    "another type": put(lambda content: b"\0\0\x0d" + content[3:]),
    "a label of 255": put(lambda content: content[:-1] + b"\xff"),
    "images without labels": lengths(7),
}
IDX_ZIPPED = {
    "3 GB behind what its header says": put(lambda content: gzip_bomb(gzip.decompress(content))),
    "3 GB, as its header says": put(
        lambda content: gzip_bomb(b"\0\0\x08\x03" + struct.pack(">III", 3 * 2**18, 64, 64))
    ),
    "zipped twice": put(gzip.compress),
    **{name: zipped(damage) for name, damage in IDX.items()},
}
CIFAR = {
    "a record too short": put(lambda content: content[:-3072]),
    "one pixel short": put(lambda content: content[:-1]),
    "a label of 255": put(lambda content: b"\xff\xff" + content[2:]),
    "a label of 10": put(lambda content: b"\x0a" + content[1:]),
    "3 GB behind it": lambda path, draw: path.open("ab").truncate(3073 * 2**20),
}

# LIBSVM


def rows(text: str, count: int = 1) -> Damage:
    """Damage that appends rows to a LIBSVM file."""
    return put(lambda content: content + text.encode() * count)


LIBSVM = {
    "index 2147483647": rows("1 2147483647:1\n"),
    "index 2147483648": rows("1 2147483648:1\n"),
    "index of 5000 digits": rows(f"1 {'9' * 5000}:1\n"),
    "indices that would be a huge dense matrix": rows("1 1:1 40000000:2\n-1 2:1\n", 2000),
    "a hundred million features": rows("1 1:1 100000000:2\n"),
    "index -1": rows("1 -1:1\n"),
    "index 0 among others": rows("1 0:1 1:1\n"),
    "huge label": rows("1e308 1:1\n"),
    "label that overflows": rows("1e999 1:1\n"),
    "label of a million digits": rows("9" * 10**6 + " 1:1\n"),
    "three labels": rows("7 1:1\n"),
    "one label": put(b"1 1:1\n1 2:1\n"),
    "huge value": rows("1 1:1e308 2:1e308\n"),
    "value that overflows": rows("1 1:1e309\n"),
    "no features": put(b"1\n-1\n"),
    "comments": put(b"# nothing\n" * 100),
    "query ids": rows("1 qid:3 1:1\n"),
    "values without an index": rows("1 1 2 3\n"),
    "millions of features in a row": put(b"1" + b" 1:1" * 2**22 + b"\n"),
    "a thousand million features in rising order": rows(
        "".join(f"1 {n}:1\n" for n in range(1, 2**31, 2**26))
    ),
}
LIBSVM_GZ = {"3 GB of rows": put(gzip_bomb(b"1 1:1\n-1 2:1\n", what=b"1 1:1\n"))}
LIBSVM_BZ2 = {"3 GB of rows": put(lambda content: content + bz2.compress(b"1 1:1\n" * 2**23) * 64)}

# Text

TEXT = {
    "a text of one word": put(b"word"),
    "blank lines": put(b" \n" * 1000),
    "a million lines": put(b"\n" * 10**6 + b"a\n"),
    "millions of words": put(lambda content: b" ".join(b"%x" % n for n in range(2**22)) + b"\n"),
    "no utf-8 in the last line": put(lambda content: content + b"\xff\xfe\n"),
    "half a surrogate": put(lambda content: content + b"a \xed\xa0\x80 b\n"),
    "line of 200 MB": lambda path, draw: path.write_bytes(b"a b" * (200 * 2**20 // 3)),
    "zeros": put(bytes(10**6)),
}
VOCABULARY = {
    "a unit twice": put(lambda content: content + b"film\n"),
    "an empty unit": put(lambda content: content + b"\nx\n"),
    "no special units": put(b"a\nb\n"),
    "millions of units": put(lambda content: content + b"".join(b"%x_\n" % n for n in range(2**22))),
    "a unit of 100 MB": put(lambda content: content + b"a" * 10**8),
}
SST2 = {
    "a column too few": put(lambda content: content + b"a sentence alone\n"),
    "a column too many": put(lambda content: content + b"a\t1\t1\n"),
    "label 2": put(lambda content: content + b"a\t2\n"),
    "label in other digits": put(lambda content: content + "a\t\u0661\n".encode()),
    "no header": put(lambda content: content.split(b"\n", 1)[1]),
    "header alone": put(b"sentence\tlabel\n"),
    "no sentence": put(lambda content: content + b"\t1\n"),
    "a sentence of 50 MB": put(lambda content: content + b"film " * 10**7 + b"\t1\n"),
    "a word of 50 MB": put(lambda content: content + b"f" * 5 * 10**7 + b"\t1\n"),
    "millions of rows": put(lambda content: content + b"a\t1\n" * (3 * 10**6)),
}


def masked(root: Path) -> None:
    write_words("wikitext-2", "wiki.{}.tokens", ("train", "valid", "test"))(root)
    write_sst2(root)


def write_words(folder: str, name: str, splits: tuple[str, ...]) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / folder).mkdir(parents=True)
        for split in splits:
            (root / folder / name.format(split)).write_text(" = a title = \n a fine <unk> film .\n" * 40)

    return write


# Ratings


def write_ratings(name: str) -> Callable[[Path], None]:
    """A function that writes ratings of 13 users, each of 20 of 130 items."""
    edition = EDITIONS[name]

    def write(root: Path) -> None:
        pairs = [(user, 1 + (20 * user + item) % 130) for user in range(1, 14) for item in range(20)]
        lines = [edition.separator.join(map(str, (*pair, 4, time))) for time, pair in enumerate(pairs)]
        path = root / edition.member
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(([edition.header] if edition.header else []) + lines) + "\n")

    return write


def ratings(separator: str) -> dict[str, Damage]:
    def row(*fields: str, repeated: int = 1, count: int = 1) -> Damage:
        return put(lambda content: content + (separator.join(fields * repeated) + "\n").encode() * count)

    return {
        "a column too few": row("1", "2", "3"),
        "a column too many": row("1", "2", "3", "4", "5"),
        "ten million columns": row("1", repeated=10**7),
        "blank columns without end": row("", repeated=3 * 10**7),
        "columns lost everywhere": put(lambda content: content.replace(separator.encode() + b"4", b"")),
        "user of 20 digits": row("9" * 20, "2", "3", "4"),
        "user of 5000 digits": row("9" * 5000, "2", "3", "4"),
        "user of 18 digits": row("9" * 18, "2", "3", "4"),
        "user 1\\0x": row("1\0x", "2", "3", "4"),
        "rating 6": row("1", "2", "6", "4"),
        "rating nan": row("1", "2", "nan", "4"),
        "time -1": row("1", "2", "3", "-1"),
        "quotes": row('"1', '2"', "3", "4"),
        "few ratings": put(lambda content: b"\n".join(content.split(b"\n")[:9]) + b"\n"),
        "one pair a million times": row("1", "2", "3", "4", count=10**6),
    }


FORMATS = {
    "idx": Format(("data=mnist", *MLP), lambda root: write_idx(root, "MNIST"), "MNIST/raw/*", IDX),
    "idx.gz": Format(
        ("data=fashion_mnist", *MLP),
        lambda root: write_idx(root, "FashionMNIST", zipped=True),
        "FashionMNIST/raw/*",
        IDX_ZIPPED,
    ),
    "cifar10": Format(
        ("data=cifar10", *MLP), lambda root: write_cifar(root, "cifar10"), "cifar-10-batches-bin/*", CIFAR
    ),
    "cifar100": Format(
        ("data=cifar100", *MLP), lambda root: write_cifar(root, "cifar100"), "cifar-100-binary/*", CIFAR
    ),
}
LOGISTIC = ("data=libsvm", "data.name=few", "model=logistic_l2", "optimizer.lr=null", "schedule=constant")
LOGISTIC += ("optimizer.momentum=0", "optimizer.nesterov=false", "optimizer.weight_decay=0")


def write_libsvm(suffix: str = "", pack: Callable[[bytes], bytes] = bytes) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        plain = write_rows(root, "few", 20, 4)
        content = plain.read_bytes()
        plain.unlink()
        plain.with_name(plain.name + suffix).write_bytes(pack(content))

    return write


FORMATS |= {
    "libsvm": Format(LOGISTIC, write_libsvm(), "libsvm/*", LIBSVM),
    "libsvm.gz": Format(LOGISTIC, write_libsvm(".gz", gzip.compress), "libsvm/*", LIBSVM_GZ),
    "libsvm.bz2": Format(LOGISTIC, write_libsvm(".bz2", bz2.compress), "libsvm/*", LIBSVM_BZ2),
    "wikitext": Format(
        ("data=wikitext2", *SMALL_LSTM),
        write_words("wikitext-2", "wiki.{}.tokens", ("train", "valid", "test")),
        "wikitext-2/*",
        TEXT,
    ),
    "penn treebank": Format(
        ("data=penn_treebank", *SMALL_LSTM),
        write_words("penn-treebank", "ptb.{}.txt", ("train", "valid", "test")),
        "penn-treebank/*",
        TEXT,
    ),
    "masked text": Format(
        ("data=wikitext2", "data.objective=masked", "data.max_length=8", *SMALL_BERT),
        masked,
        "wikitext-2/*",
        TEXT,
    ),
    "sst-2": Format(("data=sst2", *SMALL_BERT), write_sst2, "glue/SST-2/*", SST2 | TEXT),
    "vocabulary": Format(("data=sst2", *SMALL_BERT), write_sst2, "bert-base-uncased/*", VOCABULARY | TEXT),
}
NEUMF = ("data=movielens", "model=neumf", "model.factors=4", "model.hidden=[4,4]")
for edition in EDITIONS:
    FORMATS[f"movielens {edition}"] = Format(
        (*NEUMF, f"data.name={edition}"),
        write_ratings(edition),
        EDITIONS[edition].member,
        ratings(EDITIONS[edition].separator),
    )
