"""Trainings of a small language model on generated text, in any number of processes."""

from pathlib import Path
from typing import Any

import torch
from building import built, results
from configs import resolved

from trainers.training import Training

SETTINGS = {
    "none": ["compressor=none"],
    "top_k": ["compressor=top_k", "trainer.micro_batch_size=1"],
    "hard_threshold": ["compressor=hard_threshold", "trainer.clip_norm=0.05"],
    "transformer": ["compressor=top_k", "model=transformer", "model.heads=2", "optimizer.lr=0.1"],
}


def write_words(root: Path, words: int) -> str:
    """Write files of WikiText-2 with ``words`` different words, ten per line."""
    folder = root / "wikitext-2"
    folder.mkdir()
    lines = [" ".join(f"Word{i}" for i in range(start, start + 10)) for start in range(0, words, 10)]
    for split in ("train", "valid", "test"):
        (folder / f"wiki.{split}.tokens").write_text("\n".join(lines) + "\n")
    return str(root)


def write_text(root: Path) -> str:
    """Write files of WikiText-2 whose words follow a pattern."""
    folder = root / "wikitext-2"
    folder.mkdir(parents=True)
    for split, lines in (("train", 60), ("valid", 13), ("test", 11)):
        text = "\n".join(" ".join(f"w{(i * j) % 17}" for j in range(1, 8)) for i in range(lines))
        (folder / f"wiki.{split}.tokens").write_text(text + "\n")
    return str(root)


def trainer(root: str, *overrides: str, process: int = 0, processes: int = 1) -> Training:
    """A trainer of 4 workers with 2 columns each; windows of 12 tokens, 5 windows per epoch, with dropout."""
    config = resolved(
        "experiment=small/lstm_wikitext2",
        f"data.root={root}",
        *("data.bptt=12", "data.evaluation_columns=3", "data.vocabulary_size=null"),
        *("model.width=8", "model.layers=2", "model.dropout=0.3", "budget.density=0.1"),
        *("trainer.batch_size=2", "trainer.epochs=null", "trainer.steps=7", "trainer.log_every=2"),
        *("trainer.evaluation_batch_size=2", "trainer.evaluate_every=1"),
        *overrides,
    )
    return built(config, process, processes)


def train_all(process: int, processes: int, root: str) -> dict[str, dict[str, Any]]:
    """Weights and records of every setting."""
    torch.set_num_threads(1)
    return {
        name: results(trainer(root, *overrides, process=process, processes=processes))
        for name, overrides in SETTINGS.items()
    }
