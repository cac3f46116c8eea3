"""Binary classification from LIBSVM files, read by scikit-learn: plain, .bz2 or .gz.

Chang and Lin, https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.checks import require_flag
from data.convex.rows import RowsDataset
from data.download import fetch
from data.files import find, not_downloaded, opened, path_of, reading

HOME = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
SHAPES = {  # (rows, features) of known files; a file of the same name must have this shape
    "a9a": (32561, 123),
    "gisette_scale": (6000, 5000),
    "madelon": (2000, 500),
    "mushrooms": (8124, 112),
    "phishing": (11055, 68),
    "rcv1_train.binary": (20242, 47236),
    "w8a": (49749, 300),
}
SUFFIXES = ("", ".bz2", ".gz")
_MOST_BYTES = 2**34  # of a downloaded file; LIBSVM publishes no checksums
# A file with more features than this, and more features than non-zero entries, probably has a wrong index.
# It is refused, because all vectors and all workers' gradients would have this length.
_MOST_FEATURES = 2**22
_HOMES_SUFFIX = dict.fromkeys(("gisette_scale", "rcv1_train.binary"), ".bz2")  # none for other files


def libsvm(
    *,
    name: str,
    root: str,
    download: bool = False,
    home: str = HOME,
    replacement: bool = False,
    partition: str = "iid",
    alpha: float | None = None,
) -> RowsDataset:
    """The file ``root/libsvm/NAME``, with or without .bz2 or .gz; its labels become -1 and +1.

    Raises ``FileNotFoundError`` if there is no file. Raises ``ValueError`` for a file that is not in
    LIBSVM's format (with the line), whose labels do not have two values, whose values are not finite,
    or that has the name of a known file and another shape.
    """
    require_flag("data.download", download)
    require_flag("data.replacement", replacement)
    if not isinstance(name, str) or not name or Path(name).name != name or name in (".", ".."):
        raise ValueError(f"data.name must be the name of a file, got {name!r}")
    if not isinstance(home, str):
        raise ValueError(f"data.home must be an address, got {home!r}")
    place = path_of("data.root", root)
    folder = place / "libsvm"
    path = find(folder, name, SUFFIXES)
    if path is None and download:
        path = _download(folder, name, home)
    if path is None:
        raise not_downloaded("libsvm", place, folder / name, " (or .bz2, .gz)")
    features, labels = read(path)
    known = SHAPES.get(name)
    if known is not None and features.shape != known:
        raise ValueError(
            f"{path} has {features.shape[0]} rows and {features.shape[1]} features, "
            f"but {name} has {known[0]} and {known[1]}"
        )
    low, high = _two_values(path, labels)
    return RowsDataset(
        name=name,
        features=features,
        labels=torch.from_numpy(np.where(labels == high, 1.0, -1.0)),
        label_values=(low, high),
        replacement=replacement,
        partition=partition,
        alpha=alpha,
        cache=place / "optima",
    )


def read(path: Path) -> tuple[Any, np.ndarray]:
    """Features, a scipy CSR matrix [m, D] float64, and labels [m] float64, as in the file.

    Raises ``ValueError`` with the number of the first line that is not in LIBSVM's format, for more than
    4,194,304 features unless there are as many entries, and like ``data.files.reading``.
    """
    from sklearn.datasets import load_svmlight_file

    with reading(path):
        try:
            features, labels = load_svmlight_file(str(path), dtype=np.float64)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{path} is not a LIBSVM file: {_first_bad_line(path) or error}") from error
    if features.nnz == 0:
        raise ValueError(f"{path} is not a LIBSVM file: it has no {'features' if len(labels) else 'rows'}")
    if not (np.isfinite(features.data).all() and np.isfinite(labels).all()):
        raise ValueError(f"{path} is not a LIBSVM file: {_first_bad_line(path)}")
    if features.shape[1] > max(_MOST_FEATURES, features.nnz):
        raise ValueError(
            f"{path} has {features.shape[1]} features and {features.nnz} entries: an index is too large"
        )
    return features, labels


def _download(folder: Path, name: str, home: str) -> Path:
    """Download ``name`` from ``home``; the file is kept only if it can be parsed."""
    stem = next((name.removesuffix(s) for s in SUFFIXES if s and name.endswith(s)), name)
    file = name if stem != name else name + _HOMES_SUFFIX.get(name, "")
    target = folder / file
    fetch(f"{home}/{file}", target, None, max_bytes=_MOST_BYTES, look_at=read)
    return target


def _two_values(path: Path, labels: np.ndarray) -> tuple[float, float]:
    values = np.unique(labels)
    if len(values) != 2:
        shown = ", ".join(f"{v:g}" for v in values[:5]) + (", ..." if len(values) > 5 else "")
        raise ValueError(f"{path} must have labels of two values, got {len(values)}: {shown}")
    return float(values[0]), float(values[1])


def _first_bad_line(path: Path) -> str | None:
    """The first line that scikit-learn's reader refuses; its errors do not name the line."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            if not _is_row(line.split(b"#")[0].split()):
                rule = "must be LABEL INDEX:VALUE ... with ascending indices and finite numbers"
                return f"line {number} {rule}, got {_shown(line)}"
    return None


def _is_row(words: list[bytes]) -> bool:
    pairs = [pair.split(b":") for pair in words[1:] if not pair.startswith(b"qid:")]
    try:
        indices = [int(index) for index, _ in pairs]
        values = [float(value) for value in (*words[:1], *(value for _, value in pairs))]
    except ValueError:
        return False
    return (
        indices == sorted({*indices})
        and all(0 <= i < 2**31 for i in indices)
        and bool(np.isfinite(values).all())
    )


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("ascii", "backslashreplace").rstrip())
