"""A process that trains writes its weights as deltas; another one, which could serve the model, follows them.

    torchrun --nproc-per-node=2 examples/scripts/weight_deltas.py

The weights are compared as seen in bfloat16. As the rate falls, fewer of them change. With --versions FOLDER
the files are kept.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

from total_error.deltas import DeltaReader, DeltaWriter

VERSIONS, STEPS = 9, 10


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(folder: Path, x: torch.Tensor, y: torch.Tensor) -> None:
    """Write a version after every 10 steps."""
    model, writer = network(), DeltaWriter(folder, anchor_every=4, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sent = 0
    for _ in range(VERSIONS):
        for _ in range(STEPS):
            batch = torch.randint(len(x), (32,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.25
        written = writer.write(model.state_dict())
        first = written.number == 0
        sent += written.whole_bytes if first else written.delta_bytes
        size = "whole" if first else f"{written.delta_bytes:,} bytes instead of {written.whole_bytes:,}"
        print(f"version {written.number}: {written.density:.1%} changed, {size}")
        dist.barrier()  # only for this example: a reader may come at any time
        dist.barrier()
    print(f"bytes sent per reader {sent:,} in {VERSIONS} versions")


def serve(folder: Path, x: torch.Tensor, y: torch.Tensor) -> None:
    """Take over every version."""
    model, reader = network().bfloat16(), DeltaReader(folder)
    for number in range(VERSIONS):
        dist.barrier()
        changed = reader.read()
        assert reader.number == number
        model.load_state_dict({name: reader.tensors[name] for name in changed}, strict=False)
        dist.barrier()
    with torch.inference_mode():
        loss = nn.functional.cross_entropy(model(x.bfloat16()).float(), y)
    print(f"served model: loss {loss.item():.3f}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--versions", type=Path)
    chosen = options.parse_args()
    dist.init_process_group("gloo")
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    with tempfile.TemporaryDirectory() as temporary:
        folder = [str(chosen.versions or temporary)]
        dist.broadcast_object_list(folder)  # that of the first process
        (train if dist.get_rank() == 0 else serve)(Path(folder[0]), x, y)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
