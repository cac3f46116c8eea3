"""Handwritten digits of scikit-learn: images without a download."""

from data.classification import ClassificationDataset
from data.sklearn_tables import read_table, split_stratified


def digits(
    *, partition: str = "iid", alpha: float | None = None, reshard: str = "never", drop_last: bool = False
) -> ClassificationDataset:
    """1,797 handwritten digits of 8 x 8 pixels in 10 classes (Alpaydin and Kaynak, UCI, 1998)."""
    pixels, targets = read_table("digits.csv.gz", header_lines=0)
    train, test = split_stratified(pixels.view(-1, 1, 8, 8) / 16, targets)
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
