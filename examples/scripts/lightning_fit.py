"""Lightning with compressed gradients, by a callback.

torchrun --nproc-per-node=2 examples/scripts/lightning_fit.py

On GPUs ``DDPStrategy(ddp_comm_state=CompressionState(...), ddp_comm_hook=compression_hook)`` does the same.
On a CPU Lightning ignores these arguments.
"""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import total_error


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Compression(lightning.Callback):
    """Compresses the model that the strategy has wrapped in DistributedDataParallel."""

    state: total_error.CompressionState

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        model = trainer.strategy.model
        self.state = total_error.compress(model, "hard_threshold", density=0.01, feedback="ef")

    def on_train_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        found = self.state.summary()  # a collective: all processes call it
        if trainer.is_global_zero:
            loss = trainer.callback_metrics["loss"].item()
            print(f"loss {loss:.3f}, bytes sent per worker {found['comm/bytes_sent_total']:,.0f}")


def main() -> None:
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=3,
        callbacks=[Compression()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main()
