"""FSDP2 with a compressed reduce-scatter, and checkpoints from which the training continues.

    torchrun --nproc-per-node=2 examples/scripts/fsdp.py --checkpoint checkpoint

The same command continues after an interruption, also with another number of processes. With --max-restarts=3
and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, torchrun starts the processes again after one has died.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import total_error


def newest(folder: Path) -> Path | None:
    """The last complete checkpoint in ``folder``."""
    complete = [path.parent for path in folder.glob("step_*/.metadata")]
    return max(complete, key=lambda path: int(path.name.removeprefix("step_")), default=None)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--checkpoint", type=Path)
    options.add_argument("--save-every", type=int, default=50)
    chosen = options.parse_args()
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32)[rank::workers], torch.tensor(labels)[rank::workers]

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    mesh = init_device_mesh("cpu", (workers,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = total_error.compress_fsdp(model, "top_k", density=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

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
        generator = torch.Generator().manual_seed(1000 * state.step + rank)
        batch = torch.randint(len(x), (32,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        if chosen.checkpoint and state.step % chosen.save_every == 0:
            weights, moments = get_state_dict(model, optimizer)
            everything = {"model": weights, "optimizer": moments, "compression": state.state_dict()}
            dcp.save(everything, checkpoint_id=chosen.checkpoint / f"step_{state.step}")

    found = state.summary()  # a collective: all processes call it
    if rank == 0:
        print(f"loss {loss.item():.3f}, bytes sent per worker {found['comm/bytes_sent_total']:,.0f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
