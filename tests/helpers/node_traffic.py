"""Script on each host of torchrun: prints the bytes of a host's interface and those charged to its node."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import total_error

STEPS = 10


def sent() -> int:
    """Bytes that the host has sent over its interface."""
    dist.barrier()
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    ddp_model = DistributedDataParallel(nn.Linear(1000, 400, bias=False))
    state = total_error.compress(ddp_model, "top_k", density=0.05, within="node")
    before = sent()
    for _ in range(STEPS):
        ddp_model.zero_grad()
        ddp_model(torch.randn(8, 1000)).square().sum().backward()
    carried = sent() - before
    if os.environ["LOCAL_RANK"] == "0":
        print(json.dumps({"carried": carried, "charged": state.metrics()["comm/link_bytes_sent_total"]}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
