"""A loop of Hugging Face Accelerate with compressed gradients.

torchrun --nproc-per-node=2 examples/scripts/accelerate_loop.py
"""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import total_error


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    state = total_error.compress(model, "hard_threshold", density=0.01, feedback="ef")  # after prepare
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()

    found = state.summary()  # a collective: all processes call it
    accelerator.print(f"loss {loss.item():.3f}, bytes sent per worker {found['comm/bytes_sent_total']:,.0f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
