"""Tables of scikit-learn, divided into training and test samples.

The files are read from the package's folder without importing it: importing ``sklearn.datasets`` takes
longer than the rest of a small run's start.
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from data.classification import Split
from data.stratified import held_out_mask


def read_table(file: str, header_lines: int) -> tuple[Tensor, Tensor]:
    """Features [N, F] float32 and labels [N] int64, the last column, of one of sklearn's tables.

    Raises ``FileNotFoundError`` if scikit-learn does not have the file.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise FileNotFoundError("scikit-learn, which contains this dataset, is not installed")
    path = Path(package.origin).parent / "datasets" / "data" / file
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; this version of scikit-learn does not contain it")
    table = np.loadtxt(path, delimiter=",", skiprows=header_lines)
    return torch.from_numpy(table[:, :-1]).float(), torch.from_numpy(table[:, -1]).long()


def split_stratified(inputs: Tensor, targets: Tensor) -> tuple[Split, Split]:
    """Training and test samples, four fifths and one fifth of every class.

    The draw does not depend on the run's seed.
    """
    mask = held_out_mask(targets, 0.2)
    return Split(inputs[~mask], targets[~mask]), Split(inputs[mask], targets[mask])
