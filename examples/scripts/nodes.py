"""DistributedDataParallel with a dense mean inside nodes, and gradients compressed between nodes.

torchrun --nproc-per-node=4 examples/scripts/nodes.py

On one machine, two processes stand for a node. On several machines, give --within-machine: a node then has
the processes that torchrun started on its machine.
"""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import total_error


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--within-machine", action="store_true")
    chosen = options.parse_args()
    dist.init_process_group("gloo")
    if chosen.within_machine:
        node = "node"
    else:
        node, _ = dist.new_subgroups(group_size=2)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    state = total_error.compress(model, "top_k", density=0.05, within=node)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

    found = state.summary()  # a collective: all processes call it
    if dist.get_rank() == 0:
        inside = f"inside a node per worker {found['comm/inside_bytes_sent_total']:,.0f}"
        print(f"loss {loss.item():.3f}, bytes sent per node {found['comm/bytes_sent_total']:,.0f}, {inside}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
