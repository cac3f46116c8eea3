"""Small files of SST-2 and a WordPiece vocabulary."""

from pathlib import Path

from data.text.wordpiece import SPECIAL

WORDS = ["a", "dull", "fine", "film", "play", "##ful", "##ly", "un", "."]
UNITS = [*SPECIAL, *WORDS]
TRAIN = [("a fine film ", 1), ("a dull film ", 0), ("playfully fine ", 1), ("dull ", 0)] * 8
VALIDATION = [("fine .", 1), ("a dull unfine film", 0), ("zebra", 0)]


def write_vocabulary(root: Path, units: list[str] = UNITS) -> Path:
    path = root / "bert-base-uncased" / "vocab.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{unit}\n" for unit in units), encoding="utf-8")
    return path


def write_rows(path: Path, rows: list[tuple[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["sentence\tlabel", *(f"{sentence}\t{label}" for sentence, label in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_sst2(root: Path, train=TRAIN, validation=VALIDATION) -> None:
    """Write both files and the vocabulary to the paths that ``data=sst2`` reads."""
    write_vocabulary(root)
    write_rows(root / "glue" / "SST-2" / "train.tsv", train)
    write_rows(root / "glue" / "SST-2" / "dev.tsv", validation)
