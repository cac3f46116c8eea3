"""Milliseconds per step of the convex experiments, compared with a plain NumPy loop over workers.

    python benchmarks/convex.py [--root DIR] [--rounds 5]

Each experiment runs through run.py's own trainer, in one thread and one process; every 100 steps it logs to a
tracker that discards the records. The NumPy loop computes the same steps one worker after another, without
ledger and metrics. Both run alternately; the result is the median over rounds of the ratio. Without madelon
in DIR/libsvm (default: $DATA_DIR, otherwise .data), rows of madelon's shape are drawn, with a message.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from scipy.special import expit
from threadpoolctl import threadpool_limits

from trainers.comm.communicator import Communicator
from trainers.loop import run

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # run.py is not in a package

EXPERIMENTS = (  # name, steps per round, goal in ms per step
    ("madelon_sgd", 2000, 0.25),
    ("madelon_gd_star_20", 600, 0.9),
    ("madelon_gd_star_100", 400, 1.3),
)
METHODS = ("none", "top_k", "hard_threshold", "random_k", "random_block")


class NoTracker:
    def log(self, record: dict[str, float]) -> None: ...


def build(experiment: str, method: str, steps: int, root: Path, name: str) -> Any:
    """The trainer of one experiment."""
    from trainers.run.build import build_training

    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        overrides = [f"experiment=convex/{experiment}", f"compressor={method}", f"trainer.steps={steps}"]
        overrides += [f"data.root={root}", f"data.name={name}", "trainer.log_every=100"]
        config = compose("config", overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        del config.hydra
        config = OmegaConf.to_container(config, resolve=True)
    return build_training(config, Communicator(config["workers"]), torch.device("cpu"))


def numpy_seconds(trainer: Any, method: str, steps: int) -> float:
    """Seconds of a NumPy loop over workers: gradient, error feedback, compression, mean."""
    model, loader = trainer.model, trainer.loader
    rows = loader.whole()
    table = rows.features[rows.indices]  # rows ordered by worker
    blocks = np.split(table, np.cumsum(rows.lengths)[:-1])
    workers, size, step_size, l2 = len(blocks), table.shape[1], model.step_size, model.l2
    reducer = trainer.reducer  # wrappers: feedback if there is one, then measurement, then the method
    while hasattr(reducer, "inner"):
        reducer = reducer.inner
    codec = getattr(reducer, "codec", None)
    density = getattr(codec, "density", None)
    kept = max(1, int(density * size + 1e-9)) if density else 0
    x = model.start.numpy().copy()
    memory = [np.zeros(size) for _ in blocks]
    at_optimum = [b.T @ expit(b @ model.optimum.numpy()) / len(b) for b in blocks]
    batch, shift = loader.batch_size, model.shift
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    for _ in range(steps):
        mean = np.zeros(size)
        shared = rng.choice(size, kept, replace=False) if method.startswith("random") else None
        for worker, block in enumerate(blocks):
            few = block if batch is None else block[rng.integers(len(block), size=batch)]
            gradient = expit(few @ x) @ few / len(few) + l2 * x
            if shift:
                gradient -= at_optimum[worker] + l2 * model.optimum.numpy()
            p = memory[worker]
            p += step_size * gradient
            if method == "none":
                mean += p
                p[:] = 0
                continue
            if method == "top_k":
                where = np.argpartition(-np.abs(p), kept - 1)[:kept]
            elif method == "hard_threshold":
                where = np.flatnonzero(np.abs(p) >= codec.threshold)
            else:
                where = shared
            mean[where] += p[where]
            p[where] = 0
        x -= mean / workers
    return time.perf_counter() - started


def trainer_seconds(experiment: str, method: str, steps: int, root: Path, name: str) -> tuple[float, Any]:
    trainer = build(experiment, method, steps, root, name)
    started = time.perf_counter()
    run(trainer, NoTracker())
    return time.perf_counter() - started, trainer


def draw_rows(folder: Path) -> str:
    """Write rows of madelon's shape and range; returns the file's name."""
    rng = np.random.default_rng(0)
    path = folder / "libsvm" / "like_madelon"
    path.parent.mkdir(parents=True)
    table = rng.normal(480, 40, (2000, 500)).round().astype(int)
    lines = (f"{rng.choice((-1, 1))} " + " ".join(f"{i}:{v}" for i, v in enumerate(row, 1)) for row in table)
    path.write_text("\n".join(lines) + "\n")
    return path.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(os.environ.get("DATA_DIR", ".data")))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    with tempfile.TemporaryDirectory() as scratch:
        root, name = options.root, "madelon"
        if not any((root / "libsvm" / f"madelon{end}").is_file() for end in ("", ".bz2", ".gz")):
            root, name = Path(scratch), draw_rows(Path(scratch))
        versions = f"torch {torch.__version__}, numpy {np.__version__}"
        print(f"rows: {name}; {versions}, one thread, {options.rounds} rounds\n")
        print("| experiment | compressor | ms, least | ms, median | goal | loop, median | trainer / loop |")
        print("|---|---|---:|---:|---:|---:|---:|")
        for experiment, steps, goal in EXPERIMENTS:
            for method in METHODS:
                ours, theirs, ratios = [], [], []
                for _ in range(options.rounds):
                    seconds, trainer = trainer_seconds(experiment, method, steps, root, name)
                    loop = numpy_seconds(trainer, method, steps // 4) * steps / (steps // 4)
                    ours.append(1e3 * seconds / steps)
                    theirs.append(1e3 * loop / steps)
                    ratios.append(seconds / loop)
                print(
                    f"| {experiment} | {method} | {min(ours):.3f} | {statistics.median(ours):.3f} | {goal} "
                    f"| {statistics.median(theirs):.3f} | {statistics.median(ratios):.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
