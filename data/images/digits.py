"""Handwritten digits of scikit-learn: images without a download."""

from typing import Any

from data.classification import ClassificationDataset
from data.partition import Sharing
from data.sklearn_tables import read_table, split_stratified


def digits(**sharing: Any) -> ClassificationDataset:
    """1,797 handwritten digits of 8 x 8 pixels in 10 classes (Alpaydin and Kaynak, UCI, 1998)."""
    pixels, targets = read_table("digits.csv.gz", header_lines=0)
    train, test = split_stratified(pixels.view(-1, 1, 8, 8) / 16, targets)
    return ClassificationDataset(
        train=train,
        test=test,
        num_classes=10,
        sharing=Sharing(**sharing),
        mean=(0.305,),
        std=(0.376,),
    )
