"""scikit-learn's breast cancer dataset: a small table with binary labels."""

from typing import Any

import torch

from data.classification import ClassificationDataset, Split
from data.partition import Sharing
from data.sklearn_tables import read_table, split_stratified


def breast_cancer(**sharing: Any) -> ClassificationDataset:
    """569 tumours with 30 features in 2 classes (Wolberg et al., UCI, 1995), standardised."""
    features, targets = read_table("breast_cancer.csv", header_lines=1)
    train, test = split_stratified(features, targets)
    std, mean = torch.std_mean(train.inputs, 0)
    train, test = (Split((part.inputs - mean) / std, part.targets) for part in (train, test))
    return ClassificationDataset(
        train=train,
        test=test,
        num_classes=2,
        sharing=Sharing(**sharing),
    )
