"""Interfaces of the trainer's parts, and their optional capabilities."""

from functools import partial
from pathlib import Path

from libsvm_files import write_rows
from torch import nn

from compressors.core.randomness import generator
from data.convex.libsvm import libsvm
from data.images.digits import digits
from data.protocols import WholeLoader, reads_files
from models.convex.logistic_l2 import logistic_l2
from trainers.parts import AnalyticModel, HasDiagnostics, HasStepSize, facts_of


def test_a_convex_problem_offers_all_there_is(tmp_path: Path) -> None:
    write_rows(tmp_path, "few", 40, 6)
    dataset = libsvm(name="few", root=str(tmp_path))
    model = logistic_l2(**dataset.model_arguments())
    loader = dataset.loader(2, range(2), 4, partial(generator, 1))
    assert isinstance(model, AnalyticModel) and isinstance(model, HasDiagnostics)
    assert isinstance(model, HasStepSize) and isinstance(loader, WholeLoader)
    assert facts_of(model)["step_size"] == model.step_size
    assert facts_of(loader) == {"rows_per_worker": 20}


def test_a_network_and_images_in_memory_offer_nothing_beside() -> None:
    model, dataset = nn.Linear(64, 10), digits()
    loader = dataset.loader(2, range(2), 8, partial(generator, 1))
    for kind in (AnalyticModel, HasDiagnostics, HasStepSize):
        assert not isinstance(model, kind)
    assert not isinstance(loader, WholeLoader) and not reads_files(loader) and not reads_files(dataset)
    assert facts_of(model) == {}
