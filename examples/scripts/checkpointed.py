"""DistributedDataParallel with compressed gradients, and checkpoints from which the training continues.

    torchrun --nproc-per-node=2 examples/scripts/checkpointed.py --checkpoint checkpoint

The same command continues after an interruption, also with another number of processes. With --max-restarts=3
and, for gloo, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, torchrun does so by itself. Each process writes its own
residuals to a checkpoint of torch.distributed.checkpoint, whose .metadata is written last.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

import total_error


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """64 points of a worker, and whether the sum of their coordinates is positive."""
    points = torch.randn(64, 32, generator=torch.Generator().manual_seed(1000 * step + rank))
    return points, (points.sum(1) > 0).long()


def newest(folder: Path) -> Path | None:
    """The last complete checkpoint in ``folder``."""
    complete = [path.parent for path in folder.glob("step_*/.metadata")]
    return max(complete, key=lambda path: int(path.name.removeprefix("step_")), default=None)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--checkpoint", type=Path)
    options.add_argument("--save-every", type=int, default=20)
    options.add_argument("--compressor", default="hard_threshold")
    options.add_argument("--density", type=float, default=0.01)
    chosen = options.parse_args()
    dist.init_process_group("gloo")

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 2))
    ddp_model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = total_error.compress(ddp_model, chosen.compressor, density=chosen.density, feedback="ef")

    last = newest(chosen.checkpoint) if chosen.checkpoint else None
    if last is not None:
        before = {"compression": {"num_workers": torch.tensor(0)}}
        dcp.load(before, checkpoint_id=last)
        weights, moments = get_state_dict(model, optimizer)
        saved = state.empty_state_dict(int(before["compression"]["num_workers"]))
        dcp.load({"model": weights, "optimizer": moments, "compression": saved}, checkpoint_id=last)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        state.load_state_dict(saved)

    while state.step < chosen.steps:
        points, labels = batch(state.step, dist.get_rank())
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp_model(points), labels)
        loss.backward()
        optimizer.step()
        if chosen.checkpoint and state.step % chosen.save_every == 0:
            weights, moments = get_state_dict(model, optimizer)
            everything = {"model": weights, "optimizer": moments, "compression": state.state_dict()}
            dcp.save(everything, checkpoint_id=chosen.checkpoint / f"step_{state.step}")

    found = state.summary()  # a collective: all processes call it
    if dist.get_rank() == 0:
        print(f"step {state.step}  loss {loss.item():.4f}")
        for name in ("compression/total_error", "comm/bytes_sent_total", "comm/link_bytes_sent_total"):
            print(f"{name}  {found[name]:g}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # processes of one machine
    main()
