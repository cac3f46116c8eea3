"""Image dataset on disk: threads decode each batch one step ahead of the model."""

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from data.classification import Classification, LabelledBatch, SampleArguments, normalise
from data.images.augment import Augmentation
from data.images.reader import ImageReader
from data.images.resized_crop import draw_crops
from data.images.tree import ImageFiles
from data.partition import Sharing
from data.sampler import ShardLoader, shard_loader


@dataclass(frozen=True, kw_only=True)
class StreamedImages:
    """``ClassificationDataset`` for images on disk.

    With the same ``reader``, ``mean``, ``std`` and ``augmentation`` both give the same batches.
    With ``crops`` a random part of each training image is resized, instead of its middle.
    """

    train: ImageFiles
    held_out: dict[str, ImageFiles]
    num_classes: int
    reader: ImageReader
    decoders: int  # threads
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation | None = None
    crops: bool = False
    sharing: Sharing
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    task = Classification()
    reads_files = True  # during training, so a batch may fail

    def model_arguments(self) -> SampleArguments:
        """Keyword arguments that a model factory takes from the data."""
        return {"input_shape": self.reader.shape, "num_classes": self.num_classes}

    def to(self, device: torch.device) -> Self:
        """A copy of the dataset with its batches on ``device``."""
        return replace(self, device=device)

    def facts(self) -> dict[str, Any]:
        counts = {
            f"{name} images": len(part) for name, part in {"train": self.train, **self.held_out}.items()
        }
        return {"classes": self.num_classes, **counts, "decoded": "per batch"}

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> "StreamedLoader":
        """Batches of the workers in ``local_workers``; raises like ``shard_loader``."""
        pool, files = ThreadPoolExecutor(self.decoders), self.train

        def start(indices: Tensor, step: int, worker: int) -> Request:
            generator = generator_of("augment", step, worker)
            return request(pool, self.reader, files, indices, generator, self.crops)

        requests = shard_loader(
            start, files.targets, workers, local_workers, batch_size, generator_of, self.sharing
        )
        return StreamedLoader(self, requests, pool)

    def held_out_batch(self, split: str, indices: Tensor) -> LabelledBatch:
        """Samples of the split ``split`` at ``indices`` [B]. Raises ``OSError`` for an unreadable image."""
        with ThreadPoolExecutor(self.decoders) as pool:
            return self.finish(request(pool, self.reader, self.held_out[split], indices))

    def finish(self, wanted: "Request") -> LabelledBatch:
        """The batch of a request, on the device; waits until it is decoded."""
        images = torch.stack([image.result() for image in wanted.images]).contiguous()
        images = images.to(self.device, non_blocking=True)
        if wanted.generator is not None and self.augmentation is not None:
            images = self.augmentation(images, wanted.generator)
        targets = wanted.targets.to(self.device, non_blocking=True)
        return LabelledBatch(normalise(images, self.mean, self.std), targets)


class Request(NamedTuple):
    """A batch that is being decoded."""

    images: Sequence[Future[Tensor]]  # B, of uint8 [C, H, W]
    targets: Tensor  # [B] int64
    generator: torch.Generator | None  # for the augmentation after decoding; None for held-out images


def request(
    pool: ThreadPoolExecutor,
    reader: ImageReader,
    files: ImageFiles,
    indices: Tensor,
    generator: torch.Generator | None = None,
    crops: bool = False,
) -> Request:
    """Start decoding the files at ``indices`` [B] in ``pool``."""
    draws: Sequence[Tensor | None] = [None] * len(indices)
    if crops and generator is not None:
        draws = [*draw_crops(len(indices), generator)]
    images = [
        pool.submit(reader.read, files.paths[i], d) for i, d in zip(indices.tolist(), draws, strict=True)
    ]
    return Request(images, files.targets[indices], generator)


class StreamedLoader:
    """Batches of the local workers. The next step's batches are decoded while the model computes."""

    reads_files = True

    def __init__(self, dataset: StreamedImages, requests: ShardLoader, pool: ThreadPoolExecutor) -> None:
        self.dataset = dataset
        self.requests = requests
        self.epochs_per_step = requests.epochs_per_step
        self._ahead: tuple[int, list[Request]] = (-1, [])
        # Otherwise the program would decode all requested batches before it ends.
        weakref.finalize(self, pool.shutdown, wait=False, cancel_futures=True)

    def batches(self, step: int) -> list[LabelledBatch]:
        """W batches, determined by ``step`` alone. Raises ``OSError`` for an unreadable image."""
        number, wanted = self._ahead
        if number != step:
            for image in (image for one in wanted for image in one.images):
                image.cancel()
            wanted = self.requests.batches(step)
        self._ahead = step + 1, self.requests.batches(step + 1)
        return [self.dataset.finish(one) for one in wanted]
