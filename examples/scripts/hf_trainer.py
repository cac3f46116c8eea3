"""Hugging Face Trainer with compressed gradients, by a callback.

torchrun --nproc-per-node=2 examples/scripts/hf_trainer.py
"""

from tempfile import TemporaryDirectory

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

import total_error


class Digits(Dataset):
    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        self.images = torch.tensor(images / 16, dtype=torch.float32)
        self.labels = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"images": self.images[number], "labels": self.labels[number]}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        scores = self.layers(images)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


class Compression(TrainerCallback):
    """Compresses the model that the trainer has wrapped in DistributedDataParallel."""

    trainer: Trainer
    state: total_error.CompressionState

    def on_train_begin(self, *_: object, **__: object) -> None:
        self.state = total_error.compress(
            self.trainer.model_wrapped, "hard_threshold", density=0.01, feedback="ef"
        )

    def on_train_end(self, args: TrainingArguments, *_: object, **__: object) -> None:
        found = self.state.summary()  # a collective: all processes call it
        if args.process_index == 0:
            print(f"bytes sent per worker {found['comm/bytes_sent_total']:,.0f}", flush=True)


def main() -> None:
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=3,
            per_device_train_batch_size=32,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,  # it would clip after compression; compress(..., clip_norm=1.0) clips before
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        compression = Compression()
        trainer = Trainer(Classifier(), arguments, train_dataset=Digits(), callbacks=[compression])
        compression.trainer = trainer
        found = trainer.train()
        if arguments.process_index == 0:
            print(f"loss {found.training_loss:.3f}")


if __name__ == "__main__":
    main()
