"""MovieLens ratings (Harper and Konstan, 2015, https://doi.org/10.1145/2827872): 100k, 1m and 20m.

From https://grouplens.org/datasets/movielens. The files differ: ``u.data`` has tabs, ``ratings.dat``
two colons, ``ratings.csv`` commas and a header. Every rating counts as a positive, whatever its value.
"""

import os
import warnings
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np

from data.checks import require_flag
from data.download import fetch, take_from_zip
from data.files import LONGEST_LINE, MOST_BYTES, FileBoundError, not_downloaded, open_bounded, path_of
from data.ratings.dataset import RatingsDataset, check_settings, ratings_dataset
from data.ratings.leave_last_out import Ratings

HOME = "https://files.grouplens.org/datasets/movielens"
FIELDS = ("user", "item", "rating", "timestamp")


@dataclass(frozen=True)
class Edition:
    """Path (in the zip file and under the root) and format of an edition's ratings."""

    member: str
    md5: str  # published MD5 of the zip file
    separator: str
    header: str = ""

    @property
    def archive(self) -> str:
        return f"{self.member.split('/')[0]}.zip"


EDITIONS = {
    "100k": Edition("ml-100k/u.data", "0e33842e24a9c977be4e0107933c0723", "\t"),
    "1m": Edition("ml-1m/ratings.dat", "c4d9eecfca2ab87c1945afe126590906", "::"),
    "20m": Edition(
        "ml-20m/ratings.csv", "cd245b17a1ae2cc31bb14903e1204af3", ",", "userId,movieId,rating,timestamp"
    ),
}


def movielens(
    *,
    name: str,
    root: str,
    download: bool = False,
    min_ratings: int = 20,
    negatives: int = 4,
    partition: str = "iid",
    alpha: float | None = None,
) -> RatingsDataset:
    """The edition ``name``; users with fewer than ``min_ratings`` ratings are dropped.

    Raises ``FileNotFoundError`` if its file is missing, and ``ValueError`` with the line number for a file
    in another format.
    """
    require_flag("data.download", download)
    check_settings(min_ratings, negatives, partition, alpha)
    if not isinstance(name, str) or name not in EDITIONS:
        raise ValueError(f"data.name must be one of {', '.join(EDITIONS)}, got {name!r}")
    edition = EDITIONS[name]
    path = path_of("data.root", root) / edition.member
    if not path.is_file():
        if not download:
            raise not_downloaded("movielens", path_of("data.root", root), path)
        _download(edition, path)
    return ratings_dataset(
        f"movielens-{name}",
        read(path, edition),
        source=str(path),
        min_ratings=min_ratings,
        negatives=negatives,
        partition=partition,
        alpha=alpha,
    )


def _download(edition: Edition, path: Path) -> None:
    """Download the edition's zip file and extract the ratings. Raises ``OSError`` if that fails."""
    archive = path.with_name(f"arriving-{os.getpid()}.zip")
    try:
        fetch(f"{HOME}/{edition.archive}", archive, edition.md5, files=[path])
        take_from_zip(archive, {edition.member: path})
    except ValueError as error:
        raise OSError(f"data.download: {error}") from error
    finally:
        archive.unlink(missing_ok=True)


def read(path: Path, edition: Edition) -> Ratings:
    """The ratings in file order. Raises ``ValueError`` with the number of the first malformed line."""
    import pandas as pd

    with _open(path) as file:
        first = file.readline().rstrip(b"\r\n").decode("ascii", "backslashreplace")
    if edition.header and first != edition.header:
        raise ValueError(f"{path} line 1: must be {edition.header}, got {first[:60]!r}")
    width = len(edition.separator)  # "::" is parsed as ":" with an empty column between: many times faster
    columns = [name for field in FIELDS for name in (field, *(f"{field}_{i}" for i in range(1, width)))]
    columns = columns[: len(columns) - width + 1]
    kinds = {column: np.float32 if column in ("rating",) or "_" in column else np.int64 for column in columns}
    try:
        with warnings.catch_warnings(), _open(path) as file:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields beyond the last column
            table = pd.read_csv(
                file,
                sep=edition.separator[0],
                names=columns,
                dtype=kinds,
                header=None,
                index_col=False,
                skiprows=1 if edition.header else 0,
                quoting=3,  # csv.QUOTE_NONE
                encoding="ascii",
                encoding_errors="backslashreplace",
                engine="c",
            )
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path} has no ratings") from error
    except FileBoundError:
        raise
    except (ValueError, OverflowError, pd.errors.ParserWarning) as error:
        raise ValueError(f"{path} {_first_bad_line(path, edition) or error}") from error
    between = [column for column in columns if "_" in column]
    sound = all(bool(table[column].isna().all()) for column in between)
    sound = sound and bool(table["rating"].between(0.5, 5).all())
    sound = sound and all(bool((table[column] >= 0).all()) for column in ("user", "item", "timestamp"))
    if not sound:
        raise ValueError(f"{path} {_first_bad_line(path, edition) or 'is malformed'}")
    if len(table) == 0:
        raise ValueError(f"{path} has no ratings")
    return Ratings(*(table[column].to_numpy() for column in ("user", "item", "timestamp")))


def _open(path: Path) -> BufferedReader:
    return open_bounded(path, MOST_BYTES, LONGEST_LINE)


def _first_bad_line(path: Path, edition: Edition) -> str | None:
    """Number and fault of the first malformed line.

    The file is read a second time after an error, because pandas does not name the line.
    """
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            text = line.decode("ascii", "backslashreplace").rstrip("\r\n")
            if not text.strip() or (number == 1 and edition.header):
                continue
            problem = _problem(text.split(edition.separator))
            if problem:
                return f"line {number}: {problem}"
    return None


def _problem(fields: list[str]) -> str | None:
    if len(fields) != len(FIELDS):
        return f"must have {len(FIELDS)} fields, {', '.join(FIELDS)}, got {len(fields)}"
    for name, text in zip(FIELDS, fields, strict=True):
        if name == "rating":
            if not _is_rating(text):
                return f"rating must be a number from 0.5 to 5, got {text[:20]!r}"
        elif not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63):
            return f"{name} must be a whole number >= 0, got {text[:20]!r}"
    return None


def _is_rating(text: str) -> bool:
    try:
        return 0.5 <= float(text) <= 5
    except ValueError:
        return False
