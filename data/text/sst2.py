"""SST-2 of GLUE (Wang et al., 2019, https://arxiv.org/abs/1804.07461), from its tsv files.

The test split's labels are not public; quality is measured on the development split, called
validation here.
"""

from pathlib import Path

import torch

from data.checks import require_count, require_flag
from data.files import not_downloaded, path_of, read_lines
from data.partition import Sharing
from data.text.sentences import SentenceDataset, SentenceSplit
from data.text.sst2_download import fetch_sst2, fetch_vocabulary
from data.text.wordpiece import WordPiece

_HEADER = ["sentence", "label"]
Labelled = tuple[list[str], list[int]]  # sentences and their labels, in file order


def sst2(
    *,
    root: str,
    download: bool = False,
    vocabulary: str | None = None,
    lowercase: bool = True,
    max_length: int = 64,
    train_rows: int | None = None,
    partition: str = "iid",
    alpha: float | None = None,
) -> SentenceDataset:
    """67,349 phrases of film reviews, 872 validation sentences, 2 classes (Socher et al., 2013).

    ``vocabulary`` is a WordPiece file, by default ROOT/bert-base-uncased/vocab.txt. Sentences are
    cut to ``max_length`` units. ``train_rows`` limits training to that many rows, drawn with a fixed
    seed. Raises ``FileNotFoundError`` for missing files without ``download``, ``ValueError`` for an
    invalid setting, and ``ValueError`` with the line number for a malformed row.
    """
    require_flag("data.download", download)
    require_count("data.max_length", max_length, minimum=3)
    home = path_of("data.root", root)
    folder, words = home / "glue" / "SST-2", home / "bert-base-uncased" / "vocab.txt"
    if vocabulary:
        words = path_of("data.vocabulary", vocabulary)
    paths = [folder / "train.tsv", folder / "dev.tsv"]
    missing = [path for path in paths if not path.is_file()]
    if missing and not download:
        raise not_downloaded("sst2", home, missing[0])
    if missing:
        fetch_sst2(folder)
    if download and not vocabulary and not words.is_file():
        fetch_vocabulary(words)
    units = WordPiece.read(words, lowercase)
    train, validation = (read_rows(path) for path in paths)
    if train_rows is not None:
        train = _draw(train, train_rows)
    parts = [
        SentenceSplit(*units.encode_padded(sentences, max_length), torch.tensor(labels))
        for sentences, labels in (train, validation)
    ]
    return SentenceDataset(
        train=parts[0],
        held_out={"validation": parts[1]},
        vocabulary_size=len(units),
        num_classes=2,
        max_length=max_length,
        sharing=Sharing(partition=partition, alpha=alpha),
    )


def read_rows(path: Path) -> Labelled:
    """Sentences and labels of a tsv file with a header and one ``sentence<TAB>label`` per line.

    Raises ``ValueError`` for a file that is not UTF-8, has another header or no rows, and, with the
    line number, for a row that is not such a pair with label 0 or 1.
    """
    lines = read_lines(path)
    if lines[0].rstrip("\r").split("\t") != _HEADER:
        raise ValueError(f"{path}, line 1: the header must be sentence<TAB>label, got {lines[0][:80]!r}")
    sentences, labels = [], []
    for number, line in enumerate(lines[1:], start=2):
        fields = line.rstrip("\r").split("\t")
        if len(fields) != 2 or not fields[0].strip():
            raise ValueError(f"{path}, line {number}: a row must be sentence<TAB>label, got {line[:80]!r}")
        if fields[1] not in ("0", "1"):
            raise ValueError(f"{path}, line {number}: the label must be 0 or 1, got {fields[1][:80]!r}")
        sentences.append(fields[0])
        labels.append(int(fields[1]))
    if not sentences:
        raise ValueError(f"{path} has no rows")
    return sentences, labels


def _draw(rows: Labelled, count: int) -> Labelled:
    """``count`` random rows in file order; the draw does not depend on the run's seed."""
    sentences, labels = rows
    require_count("data.train_rows", count)
    if count > len(labels):
        raise ValueError(
            f"data.train_rows must be at most the number of training rows ({len(labels)}), got {count}"
        )
    drawn = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:count]
    kept = drawn.sort().values.tolist()
    return [sentences[row] for row in kept], [labels[row] for row in kept]
