"""The language model: numbers of processes, the state between steps, presets, refusals."""

from pathlib import Path

import pytest
import torch
from building import built, results
from configs import resolved
from processes import run_in_processes
from speech import SETTINGS, train_all, trainer, write_text, write_words

from trainers.step.gradients import WorkerGradients


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_text(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def one_process(root: str) -> dict:
    threads = torch.get_num_threads()
    found = train_all(0, 1, root)
    torch.set_num_threads(threads)
    return found


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_layouts_agree(one_process: dict, root: str, processes: int) -> None:
    """Bit for bit for gathered payloads, within rounding for an all-reduce."""
    found = run_in_processes(train_all, processes, root)[0]
    for name in SETTINGS:
        require_alike(name, one_process[name], found[name])


def require_alike(name: str, one: dict, other: dict) -> None:
    tolerance = 1e-5 if name == "none" else 0
    torch.testing.assert_close(other["weights"], one["weights"], rtol=tolerance, atol=tolerance)
    assert {"validation/perplexity", "test/perplexity"} <= one["records"][-1].keys()
    for a, b in zip(one["records"], other["records"], strict=True):
        for key, value in a.items():
            assert b[key] == pytest.approx(value, rel=tolerance, abs=tolerance), key


def test_the_settings_differ(one_process: dict) -> None:
    assert len({tuple(found["weights"].tolist()) for found in one_process.values()}) == len(SETTINGS)


def test_each_worker_goes_on_from_its_own_state(root: str) -> None:
    """The state after two steps equals that of reading the worker's first two windows at once."""
    found = trainer(root, "model.dropout=0")
    loss = found.dataset.task.loss
    gradients = WorkerGradients(found.model, loss, found.layout, found.communicator, seed=0)
    for step in range(2):
        gradients.compute(found.loader.batches(step), step)
    for worker, memory in enumerate(gradients.carries):
        windows = [found.loader.batches(step)[worker].inputs for step in range(2)]
        _, hidden = found.model(torch.cat(windows, 1))
        torch.testing.assert_close(memory[0], hidden)


def test_learns(root: str) -> None:
    """The perplexity is lower than that of a prediction from the frequencies of the 19 words."""
    settings = ["trainer.steps=100", "model.width=32", "model.layers=1", "model.dropout=0"]
    records = results(trainer(root, "compressor=top_k", *settings))["records"]
    assert records[-1]["validation/perplexity"] < 9


def test_paper_preset(tmp_path: Path) -> None:
    """The paper's sizes on a text with as many words as lower-cased WikiText-2."""
    config = resolved("experiment=paper/lstm_wikitext2", f"data.root={write_words(tmp_path, 28_910)}")
    found = built(config)
    assert found.layout.num_parameters == 28_977_312
    assert found.reducer.inner.codec.threshold == pytest.approx(2.938e-3, rel=1e-3)
    assert found.loader.batches(0)[0].inputs.shape[0] == 128
    assert found.settings.clip_norm == 0.4
    assert found.settings.average_reset_epochs == 30
    assert [found.optimizer.param_groups[0][key] for key in ("lr", "momentum", "weight_decay")] == [
        1.25,
        0,
        0,
    ]
    factors = [found.schedule.factor(epoch, 90) for epoch in (0, 2.5, 5, 59.9, 60, 80)]
    assert factors == pytest.approx([1, 8.5, 16, 16, 1.6, 0.16])


def test_batch_larger_than_a_stream(root: str) -> None:
    with pytest.raises(ValueError, match=r"trainer.batch_size must be at most the 119 tokens of a worker's"):
        trainer(root, "trainer.batch_size=120")
