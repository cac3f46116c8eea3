"""MovieLens ratings (Harper and Konstan, 2015, https://doi.org/10.1145/2827872): 100k, 1m and 20m.

From https://grouplens.org/datasets/movielens. The files differ: ``u.data`` has tabs, ``ratings.dat``
two colons, ``ratings.csv`` commas and a header. Every rating counts as a positive, whatever its value.
"""

import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.checks import require_flag
from data.download import fetch, take_from_zip
from data.files import not_downloaded, opened, path_of, reading
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

    with opened(path) as file:
        first = file.readline().rstrip(b"\r\n").decode("ascii", "backslashreplace")
    if edition.header and first != edition.header:
        raise ValueError(f"{path} line 1: must be {edition.header}, got {first[:60]!r}")
    width = len(edition.separator)  # "::" is parsed as ":" with an empty column between: many times faster
    columns = [name for field in FIELDS for name in (field, *(f"{field}_{i}" for i in range(1, width)))]
    columns = columns[: len(columns) - width + 1]
    kinds = {column: np.float32 if column in ("rating",) or "_" in column else np.int64 for column in columns}
    try:
        with warnings.catch_warnings(), reading(path):
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields beyond the last column
            table = pd.read_csv(
                path,
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
    except (ValueError, OverflowError, pd.errors.ParserWarning) as error:
        raise ValueError(f"{path} {_first_bad_line(path, edition) or error}") from error
    between = [column for column in columns if "_" in column]
    sound = all(bool(table[column].isna().all()) for column in between)
    sound = sound and bool(table["rating"].between(0.5, 5).all())
    sound = sound and all(bool((table[column] >= 0).all()) for column in ("user", "item", "timestamp"))
    if not sound:
        raise ValueError(f"{path} {_first_bad_line(path, edition) or 'is malformed'}")
    return Ratings(*(table[column].to_numpy() for column in ("user", "item", "timestamp")))


def _first_bad_line(path: Path, edition: Edition) -> str | None:
    """The first malformed line; pandas does not name it."""
    number, rating = r"\d{1,18}", r"(0\.[5-9]\d*|[1-4](\.\d*)?|5(\.0*)?)"
    row = re.compile(edition.separator.join((number, number, rating, number)), re.ASCII)
    rule = f"must be {edition.separator.join(FIELDS)}, whole numbers and a rating from 0.5 to 5"
    with opened(path) as file:
        for place, line in enumerate(file, 1):
            text = line.decode("ascii", "backslashreplace").rstrip("\r\n")
            is_header = place == 1 and bool(edition.header)
            if text.strip() and not is_header and not row.fullmatch(text):
                return f"line {place}: {rule}, got {text[:60]!r}"
    return None
