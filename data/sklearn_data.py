"""Real datasets that come with scikit-learn, so that a fresh machine has something to train on.

The files are read where the package keeps them, without importing it: ``sklearn.datasets`` takes
longer to import than everything else that a small run does before its first step. A test holds
what is read here against what scikit-learn's own loaders return.

Both datasets are split 80 to 20, stratified by label, by a fixed draw that does not depend on the
run's seed.
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from data.classification import ClassificationDataset, Split
from data.stratified import held_out_mask


def digits(
    *, partition: str = "iid", alpha: float | None = None, reshard: str = "never", drop_last: bool = False
) -> ClassificationDataset:
    """1,797 handwritten digits of 8 x 8 pixels in 10 classes (Alpaydin and Kaynak, UCI, 1998)."""
    pixels, targets = read_table("digits.csv.gz", header_lines=0)
    train, test = _stratified(pixels.view(-1, 1, 8, 8) / 16, targets)
    return ClassificationDataset(
        train=train,
        test=test,
        num_classes=10,
        partition=partition,
        alpha=alpha,
        mean=(0.305,),
        std=(0.376,),
        reshard=reshard,
        drop_last=drop_last,
    )


def breast_cancer(
    *, partition: str = "iid", alpha: float | None = None, reshard: str = "never", drop_last: bool = False
) -> ClassificationDataset:
    """569 tumours with 30 features in 2 classes (Wolberg et al., UCI, 1995), standardised."""
    features, targets = read_table("breast_cancer.csv", header_lines=1)
    train, test = _stratified(features, targets)
    std, mean = torch.std_mean(train.inputs, 0)
    train, test = (Split((part.inputs - mean) / std, part.targets) for part in (train, test))
    return ClassificationDataset(
        train=train,
        test=test,
        num_classes=2,
        partition=partition,
        alpha=alpha,
        reshard=reshard,
        drop_last=drop_last,
    )


def read_table(file: str, header_lines: int) -> tuple[Tensor, Tensor]:
    """Features [N, F] float32 and labels [N] int64, the last column, of one of sklearn's tables.

    Raises ``FileNotFoundError`` where scikit-learn does not have the file.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise FileNotFoundError("scikit-learn is not installed, and with it its datasets are missing")
    path = Path(package.origin).parent / "datasets" / "data" / file
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; this version of scikit-learn does not carry it")
    table = np.loadtxt(path, delimiter=",", skiprows=header_lines)
    return torch.from_numpy(table[:, :-1]).float(), torch.from_numpy(table[:, -1]).long()


def _stratified(inputs: Tensor, targets: Tensor) -> tuple[Split, Split]:
    """A fifth of every class for the test."""
    mask = held_out_mask(targets, 0.2)
    return Split(inputs[~mask], targets[~mask]), Split(inputs[mask], targets[mask])
