"""Post-local SGD after compressed steps: torch's model averaging with this project's hook.

torchrun --nproc-per-node=2 examples/scripts/post_local_sgd.py

The first steps average compressed gradients. Later steps are local, and torch's ``PeriodicModelAverager``
averages the weights every few steps (Lin et al., 2020, https://arxiv.org/abs/1808.07217). The residuals
are added to the first local gradient, so that the next average of the weights includes them.
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import total_error

COMPRESSED_STEPS, PERIOD = 40, 4


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    state = total_error.compress(model, "hard_threshold", density=0.01, feedback="ef")
    averager = PeriodicModelAverager(period=PERIOD, warmup_steps=COMPRESSED_STEPS)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)

    def backward(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    step, averaged = 0, 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            if step < COMPRESSED_STEPS:
                loss = backward(x, y)
            else:
                with model.no_sync():  # the hook is not called
                    loss = backward(x, y)
                if step == COMPRESSED_STEPS:
                    for name, parameter in model.module.named_parameters():
                        parameter.grad += state.state.residual[name].view_as(parameter)
            optimizer.step()
            step += 1
            averaged += step > COMPRESSED_STEPS and (step - 1 - COMPRESSED_STEPS) % PERIOD == 0

    found, size = state.summary(), sum(p.numel() for p in model.parameters())
    if dist.get_rank() == 0:
        sent = f"{found['comm/bytes_sent_total']:,.0f} in {state.step} compressed steps"
        print(f"loss {loss.item():.3f}, bytes sent per worker {sent}, {4 * size * averaged:,} in averages")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
