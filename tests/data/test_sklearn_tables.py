"""Tables of scikit-learn, compared with scikit-learn's loaders."""

import pytest
import sklearn.datasets
import torch

from compressors.core.randomness import generator
from data.convex.breast_cancer import breast_cancer
from data.images.digits import digits
from data.sklearn_tables import read_table, split_stratified


@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_split_is_disjoint_complete_and_a_fifth_of_every_class(name: str) -> None:
    """The inputs are the samples' numbers, which show the split of each sample."""
    reference = getattr(sklearn.datasets, f"load_{name}")()
    targets = torch.from_numpy(reference.target).long()
    train, test = split_stratified(torch.arange(len(targets)), targets)
    assert torch.cat([train.inputs, test.inputs]).sort().values.tolist() == list(range(len(targets)))
    for part in (train, test):
        assert torch.equal(part.targets, targets[part.inputs])
    for label, count in enumerate(targets.bincount().tolist()):
        assert abs(int((test.targets == label).sum()) - count / 5) <= 0.5
    dataset = {"digits": digits, "breast_cancer": breast_cancer}[name]()
    assert torch.equal(dataset.train.targets, train.targets)
    assert torch.equal(dataset.test.targets, test.targets)


def test_digits() -> None:
    reference = sklearn.datasets.load_digits()
    dataset = digits()
    assert (len(dataset.train), len(dataset.test)) == (1438, 359)  # each class rounded
    assert dataset.model_arguments() == {"input_shape": (1, 8, 8), "num_classes": 10}
    images = torch.from_numpy(reference.images).float() / 16
    train, test = split_stratified(images[:, None], torch.from_numpy(reference.target).long())
    assert torch.equal(dataset.train.inputs, train.inputs)
    assert torch.equal(dataset.test.inputs, test.inputs)
    batch = dataset.train_batch(torch.arange(1438), generator(0)).inputs
    assert batch.mean().item() == pytest.approx(0, abs=0.01)
    assert batch.std().item() == pytest.approx(1, abs=0.01)


def test_breast_cancer_is_standardised_by_its_training_part() -> None:
    dataset = breast_cancer()
    assert (len(dataset.train), len(dataset.test)) == (456, 113)  # each class rounded
    assert dataset.model_arguments() == {"input_shape": (30,), "num_classes": 2}
    torch.testing.assert_close(dataset.train.inputs.mean(0), torch.zeros(30), atol=1e-5, rtol=0)
    torch.testing.assert_close(dataset.train.inputs.std(0), torch.ones(30))
    features, targets = (torch.from_numpy(a) for a in sklearn.datasets.load_breast_cancer(return_X_y=True))
    train, test = split_stratified(features, targets.long())
    expected = (test.inputs - train.inputs.mean(0)) / train.inputs.std(0)
    torch.testing.assert_close(dataset.test.inputs, expected.float(), atol=1e-4, rtol=1e-4)
    batch = dataset.held_out_batch("test", torch.arange(113))
    assert torch.equal(batch.inputs, dataset.test.inputs)


def test_missing_table_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"no file .*no_such_table\.csv"):
        read_table("no_such_table.csv", 0)
