"""Evaluation, compared with a plain computation over the whole test split; bytes sent until then."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from resuming import config_of, train
from torch import Tensor, nn

from data.classification import ClassificationDataset, Split
from trainers.comm.communicator import Communicator
from trainers.evaluation import evaluate

SAMPLES = 53


def problem() -> tuple[nn.Module, ClassificationDataset]:
    """A network whose output differs in training mode, and images that need normalisation."""
    torch.manual_seed(0)
    images = torch.randint(256, (SAMPLES, 1, 4, 4), dtype=torch.uint8)
    labels = torch.randint(5, (SAMPLES,))
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 5)
    )
    nn.init.normal_(model[2].running_mean)
    train = Split(images[:10].roll(1), labels[:10])
    dataset = ClassificationDataset(
        train=train, test=Split(images, labels), num_classes=5, mean=(0.4,), std=(0.3,)
    )
    return model.train(), dataset


@dataclass
class Counting:
    """A dataset and its task that record every requested sample."""

    size: int
    seen: list[tuple[str, int]] = field(default_factory=list)

    num_sums = 2

    @property
    def task(self) -> "Counting":
        return self

    @property
    def held_out(self) -> dict[str, range]:
        return {"validation": range(self.size), "test": range(2 * self.size)}

    def held_out_batch(self, split: str, indices: Tensor) -> Tensor:
        self.seen += [(split, index) for index in indices.tolist()]
        return indices

    def measure(self, model: nn.Module, batch: Tensor) -> Tensor:
        assert not model.training and not torch.is_grad_enabled()
        return torch.tensor([batch.sum(), len(batch)], dtype=torch.float64)

    def summarise(self, sums: Tensor) -> dict[str, float]:
        return {"sum": sums[0].item(), "count": sums[1].item()}


class Alone:
    """The communicator of one of several processes; it does not communicate with the others."""

    def __init__(self, process: int, processes: int) -> None:
        self.rank = process
        self.world_size = processes
        self.device = torch.device("cpu")

    def broadcast(self, tensors: list[Tensor]) -> None: ...

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor


@pytest.mark.parametrize("batch_size", [7, 53, 1000])
def test_equals_a_plain_computation(batch_size: int) -> None:
    model, dataset = problem()
    metrics = evaluate(model, dataset, Communicator(1), batch_size)
    model.eval()
    with torch.no_grad():
        outputs = model((dataset.test.inputs / 255 - 0.4) / 0.3)
    loss = F.cross_entropy(outputs, dataset.test.targets).item()
    right = sum(int(row.argmax() == label) for row, label in zip(outputs, dataset.test.targets, strict=True))
    assert 0 < right < SAMPLES
    assert metrics == {
        "test/loss": pytest.approx(loss, rel=1e-5),
        "test/accuracy": pytest.approx(right / SAMPLES, rel=1e-12),
    }


@pytest.mark.parametrize("batch_size", [7, 1000])
@pytest.mark.parametrize("processes", [1, 3])
def test_every_sample_is_counted_once(batch_size: int, processes: int) -> None:
    dataset = Counting(SAMPLES)
    found = [
        evaluate(nn.Identity(), dataset, Alone(process, processes), batch_size)
        for process in range(processes)
    ]
    for split, size in (("validation", SAMPLES), ("test", 2 * SAMPLES)):
        assert sorted(index for name, index in dataset.seen if name == split) == list(range(size))
        total, count = (sum(metrics[f"{split}/{name}"] for metrics in found) for name in ("sum", "count"))
        assert (total, count) == (size * (size - 1) / 2, size)


@pytest.mark.parametrize("training", [True, False])
def test_mode_is_restored_and_nothing_else_changes(training: bool) -> None:
    model, dataset = problem()
    model.train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, dataset, Communicator(1), 7)
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


LINK_BYTES = "comm/link_bytes_sent_total"
WORDS = ("model=mlp", "workers=2", "trainer.batch_size=64", "trainer.steps=30", "compressor=hard_threshold")


def test_every_evaluation_has_its_bytes(tmp_path: Path) -> None:
    """They are in the record of the evaluation or of its step, and do not depend on ``trainer.log_every``."""
    found = []
    for every in (1, 7):
        records = train(config_of(tmp_path / str(every), *WORDS, f"trainer.log_every={every}"))["records"]
        of_steps = {row["step"]: row[LINK_BYTES] for row in records if "train/loss" in row}
        tests = [row for row in records if "test/accuracy" in row]
        assert all((row["step"] in of_steps) != (LINK_BYTES in row) for row in tests)
        found.append({row["step"]: row.get(LINK_BYTES, of_steps.get(row["step"])) for row in tests})
        assert any(LINK_BYTES in row for row in tests) == (every > 1)
    assert found[0] == found[1] and len(found[0]) > 2
    assert list(found[0].values()) == sorted(found[0].values())
