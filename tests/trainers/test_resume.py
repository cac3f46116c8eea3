"""Interruption and resume: weights, residuals, records, bytes and total error are unchanged."""

from pathlib import Path

import pytest
import torch
from configs import CONF
from libsvm_files import write_rows
from resuming import assert_same, config_of, crash_after, records, train

from trainers.config.errors import ConfigError
from trainers.run import session, training
from trainers.run.folder import RunFolder

COMMON = ("workers=4", "trainer.batch_size=8", "trainer.steps=11", "checkpoint.every_steps=4")
IMAGES = ("data=digits", "trainer.evaluate_every=0.05")
FEW_EVALUATIONS = ("trainer.evaluate_every=100", "trainer.evaluation_batch_size=256")
CASES = {
    "momentum": ("model=mlp", *IMAGES, "compressor=top_k", "optimizer.nesterov=true"),
    "passes": (
        *("model=mlp", *IMAGES, "compressor=top_k", "optimizer.nesterov=release", "data.reshard=epoch"),
        *("data.drop_last=true", "trainer.batch_size=100"),  # 3 steps per epoch
    ),
    "batch_norm": ("model=resnet20", *IMAGES, "workers=2", "compressor=hard_threshold", "scope=global"),
    "step_units": ("model=mlp", *IMAGES, "compressor=random_k", "feedback.scale=step", "schedule=cosine"),
    "average": ("model=mlp", *IMAGES, "compressor=none", "trainer.average_reset_epochs=0.08"),
    "adamw": (
        "model=mlp",
        *IMAGES,
        "compressor=random_block",
        "optimizer=adamw",
        "trainer.precision=bf16",
        "trainer.micro_batch_size=4",
    ),
    "no_feedback": ("model=mlp", *IMAGES, "compressor=top_k", "feedback=none", "trainer.log_every=4"),
    "evaluation_between_records": ("model=mlp", *IMAGES, "compressor=top_k", "trainer.log_every=50"),
    "diagnostics": (
        *("model=mlp", *IMAGES, "compressor=hard_threshold", "trainer.log_every=3"),
        *("diagnostics=[xi,selection_error,staleness,bound,gap,hindsight]", "diagnostics.every=5"),
    ),
    "nodes": (
        *("model=mlp", *IMAGES, "compressor=hard_threshold", "nodes=2", "feedback.scale=step"),
        *("diagnostics=[selection_error,staleness,bound,gap,hindsight]", "diagnostics.every=5"),
    ),
    "accordion": (
        *("model=mlp", *IMAGES, "compressor=accordion", "compressor.period=1", "budget.density=0.001"),
        *(
            "schedule=warmup_step",
            "schedule.milestones=[0.3]",
            "data.partition=iid",
            "trainer.batch_size=200",
        ),
        *("diagnostics=[xi,staleness,bound,hindsight]", "diagnostics.every=3"),
    ),
    "density_schedule": (
        *("model=mlp", *IMAGES, "compressor=top_k", "trainer.batch_size=200"),
        "budget.schedule={kind:exponential,start:0.25,epochs:3}",
    ),
    "shifts": ("model=mlp", *IMAGES, "compressor=natural", "feedback=diana"),
    "averages": ("model=mlp", *IMAGES, "compressor=top_k", "feedback=ef21_sgdm"),
    "hidden_states": (
        *("model=lstm", "model.width=16", "model.layers=2", "model.dropout=0.2"),
        *("data=python_docs", "data.vocabulary_size=300", "data.evaluation_columns=64", *FEW_EVALUATIONS),
    ),
    "causal_attention": (
        *("model=transformer", "model.width=16", "model.layers=2", "model.heads=2", "model.dropout=0.2"),
        *("data=python_docs", "data.vocabulary_size=300", "data.evaluation_columns=64", *FEW_EVALUATIONS),
    ),
    "attention": (
        *("experiment=small/bert_masked", "model.dropout=0.1", "data.max_length=32", "trainer.log_every=1"),
        *FEW_EVALUATIONS,
    ),
    "ratings": ("experiment=small/neumf", "trainer.log_every=1", *FEW_EVALUATIONS),
}


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


# Every compressor in the quick experiment
METHODS = {
    f"method {path.stem}": (
        *("experiment=quick", *IMAGES, f"compressor={path.stem}", "trainer.batch_size=200"),
        *(["compressor.period=1"] if path.stem == "accordion" else []),
    )
    for path in sorted((CONF / "compressor").glob("*.yaml"))
}
CASES |= METHODS
# Each case that is not slow has a kind of state that no other of them has. "attention" is slow because each
# of its five trainings tokenizes the data.
SLOW = (
    *METHODS,
    "passes",
    "evaluation_between_records",
    "density_schedule",
    "attention",
    "causal_attention",
    "momentum",
    "step_units",
    "no_feedback",
    "averages",
    "ratings",
)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES]
)
def test_an_interrupted_run_is_the_run_that_was_not(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (*COMMON, *CASES[case])
    whole = train(config_of(tmp_path / "whole", *settings))
    config = config_of(tmp_path / "broken", *settings)
    with crash_after(2):  # before the first checkpoint
        training.train(config)
    with crash_after(6):  # the next training repeats the steps after step 4
        training.train(config)
    assert [path.name for path in RunFolder(config).checkpoints.iterdir()] == ["step-000000004"]
    assert records(RunFolder(config))[-1]["step"] in (3, 5, 6)
    capsys.readouterr()
    with crash_after(9):
        training.train(config)
    assert_same(whole, train(config))
    said = "".join(capsys.readouterr())
    assert "cannot be used" not in said and "starting again" not in said, "both went on from a checkpoint"


def test_a_text_that_was_changed_is_refused(tmp_path: Path) -> None:
    """Its path is part of the run's id, its content is not."""
    text = tmp_path / "text.txt"
    text.write_text("one line of text\n\n" * 100)
    settings = (
        *("model=gpt", "data=text", f"data.files=[{text}]", "data.length=8", "workers=2", "compressor=none"),
        *(
            "trainer.batch_size=1",
            "trainer.steps=9",
            "trainer.evaluate_every=100",
            "checkpoint.every_steps=2",
        ),
    )
    config = config_of(tmp_path / "runs", *settings)
    with crash_after(4):
        training.train(config)
    text.write_text("one line of text\n\n" * 200)
    with pytest.raises(
        ConfigError, match=r"the data have changed since the checkpoint, \w+ from \d+ to \d+; re"
    ):
        session.run(config)


def test_a_convex_run(tmp_path: Path) -> None:
    write_rows(tmp_path, "rows", 40, 30)
    settings = (
        "experiment=convex/madelon_sgd",
        "data.name=rows",
        f"data.root={tmp_path}",
        *("workers=4", "trainer.steps=30", "trainer.log_every=1", "checkpoint.every_steps=7"),
    )
    whole = train(config_of(tmp_path / "whole", *settings))
    config = config_of(tmp_path / "broken", *settings)
    with crash_after(15):
        training.train(config)
    assert_same(whole, train(config))
