"""FSDP2 with compressed gradients between two replicas of two shards.

torchrun --nproc-per-node=4 examples/scripts/fsdp2.py
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import total_error


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    size = sum(p.numel() for p in model.parameters())
    fully_shard(model, mesh=mesh["shard"])
    method = total_error.method("hard_threshold", density=0.01)
    reducer = total_error.build_reducer(method, size, total_error.feedback("ef"))
    state = total_error.compress_replicas(model, reducer, mesh["replicate"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

    sent = torch.tensor(
        state.summary()["comm/bytes_sent_total"]
    )  # of this process's shards, mean of replicas
    dist.all_reduce(sent, group=mesh["shard"].get_group())
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.3f}, bytes sent per replica {sent.item():,.0f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
