"""DiLoCo with compressed pseudo-gradients, and checkpoints from which the training continues.

    torchrun --nproc-per-node=2 examples/scripts/local_steps.py --checkpoint checkpoint

The same command continues after an interruption, also with another number of processes; the moments of AdamW
then begin anew. With --max-restarts=3 and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, torchrun starts the processes
again after one has died.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

import total_error


def newest(folder: Path) -> Path | None:
    """The last complete checkpoint in ``folder``."""
    complete = [path.parent for path in folder.glob("step_*/.metadata")]
    return max(complete, key=lambda path: int(path.name.removeprefix("step_")), default=None)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--checkpoint", type=Path)
    options.add_argument("--save-every", type=int, default=100)
    chosen = options.parse_args()
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32)[rank::workers], torch.tensor(labels)[rank::workers]

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))  # without DDP
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    outer = {"lr": 0.7, "momentum": 0.9, "nesterov": True}
    local = total_error.local(model, optimizer, steps=10, compressor="top_k", density=0.05, outer=outer)

    last = newest(chosen.checkpoint) if chosen.checkpoint else None
    if last is not None:
        before = {"local": {"num_workers": torch.tensor(0)}}
        dcp.load(before, checkpoint_id=last)
        saved_workers = int(before["local"]["num_workers"])
        saved = {"local": local.empty_state_dict(saved_workers)}
        if saved_workers == workers:
            saved[f"moments/{rank}"] = get_optimizer_state_dict(model, optimizer)
        dcp.load(saved, checkpoint_id=last)
        local.load_state_dict(saved["local"])
        if saved_workers == workers:
            set_optimizer_state_dict(model, optimizer, saved[f"moments/{rank}"])

    while local.local_step < chosen.steps:
        generator = torch.Generator().manual_seed(1000 * local.local_step + rank)
        batch = torch.randint(len(x), (32,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        local.step()
        if chosen.checkpoint and local.local_step % chosen.save_every == 0:
            moments = {f"moments/{rank}": get_optimizer_state_dict(model, optimizer)}  # its own, not shared
            folder = chosen.checkpoint / f"step_{local.local_step}"
            dcp.save({"local": local.state_dict(), **moments}, checkpoint_id=folder)

    found = local.summary()  # a collective: all processes call it
    if rank == 0:
        sent = f"{found['comm/bytes_sent_total']:,.0f} in {found['step']} synchronisations"
        print(f"loss {loss.item():.3f}, bytes sent per worker {sent}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
