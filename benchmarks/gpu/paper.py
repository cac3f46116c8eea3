"""The paper's preset of ResNet-18 on CIFAR-10 at its full batch, with the predicted time of 300 epochs."""

import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu.measuring import Options, Record, synchronize

FILES = [
    f"cifar-10-batches-bin/{part}.bin" for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
]
EXPERIMENT, EPOCHS = "paper/resnet18_cifar10", 300
FASTEST = ("trainer.precision=bf16", "trainer.channels_last=true")
METHODS = {
    "none": (),
    "top_k": (),
    "hard_threshold": (),
    "hard_threshold, bf16, channels_last": FASTEST,
}
SMALL = ("workers=2", "trainer.batch_size=2", "model=resnet20", "~model.zero_init_residual")


def measure(options: Options, record: Record) -> None:
    steps = 1 if options.quick else 10
    with tempfile.TemporaryDirectory() as folder:
        root = Path(os.environ.get("DATA_DIR", ".data"))
        if all((root / file).is_file() for file in FILES):
            data = "CIFAR-10"
        else:
            root, data = Path(folder), "random images in files of CIFAR-10's format and size"
            _write_images(root, 20 if options.quick else 10_000)
        for name, overrides in METHODS.items():
            chosen = [f"experiment={EXPERIMENT}", f"compressor={name.split(',')[0]}", *overrides]
            chosen += [f"data.root={root}", *(SMALL if options.quick else ())]
            record("paper", method=name, data=data, **_measure(options, chosen, steps))


def _measure(options: Options, overrides: list[str], steps: int) -> dict[str, object]:
    from benchmarks.train import PARTS, counted, training
    from trainers.evaluation import evaluate

    device = options.device
    trainer = training(overrides, steps, device)
    records = counted(trainer)
    found: dict[str, object] = {
        f"{part}_ms": 1e3 * statistics.median(r[f"time/{part}_seconds"] for r in records) for part in PARTS
    }
    settings = trainer.settings
    for _ in range(2):  # in the first evaluation cuDNN selects its algorithms
        synchronize(device)
        started = time.perf_counter()
        evaluate(
            trainer.model,
            trainer.dataset,
            trainer.communicator,
            settings.evaluation_batch_size,
            settings.precision,
        )
        synchronize(device)
        evaluation = time.perf_counter() - started
    each_epoch = 1 + (settings.average_reset_epochs is not None)  # the average weights are tested too
    num_steps = round(EPOCHS / trainer.epochs_per_step)
    step_seconds = statistics.median(r["time/step_seconds"] for r in records)
    seconds = num_steps * step_seconds + EPOCHS * each_epoch * evaluation
    if device.type == "cuda":
        found["peak_mib"] = torch.cuda.max_memory_allocated(device) / 2**20
        torch.cuda.reset_peak_memory_stats(device)
    return found | {
        "steps": steps,
        "evaluation_ms": 1e3 * evaluation,
        f"hours_for_{EPOCHS}_epochs": seconds / 3600,
        "steps_of_them": num_steps,
    }


def _write_images(root: Path, number: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for file in FILES:
        table = torch.randint(256, (number, 3073), dtype=torch.uint8, generator=generator)
        table[:, 0] %= 10
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(table.numpy().tobytes())
