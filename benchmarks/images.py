"""Images per second of training batches in memory: read, crop, flip, rotation, normalisation.

    python benchmarks/images.py [--rounds 15]

A step's batches of 8 workers with 256 images each, as in paper/resnet18_cifar10, from 50,000 random images in
CIFAR's shape, with one thread on the CPU. Medians over rounds (``rounds.py``).
"""

import argparse
from functools import partial

import torch

from benchmarks.pages import columns, head, row
from benchmarks.rounds import Work, median_ms, seconds_in_rounds
from compressors.core.randomness import generator
from data.classification import ClassificationDataset, Split
from data.images.augment import Augmentation
from trainers.launch.memory import keep_freed_memory

WORKERS, BATCH = 8, 256
AUGMENTATIONS = {
    "none": None,
    "crop and flip, as for CIFAR-10": Augmentation(padding=4, flip=True),
    "crop, flip and rotation, as for CIFAR-100": Augmentation(padding=4, flip=True, rotation=15),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # like run.py
    draws = generator(0, "images")
    images = torch.randint(256, (50_000, 3, 32, 32), dtype=torch.uint8, generator=draws)
    part = Split(images, torch.zeros(len(images), dtype=torch.int64))
    work: Work = {}
    for name, augmentation in AUGMENTATIONS.items():
        scale = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}
        dataset = ClassificationDataset(
            train=part, test=part, num_classes=1, augmentation=augmentation, **scale
        )
        loader = dataset.loader(WORKERS, range(WORKERS), BATCH, partial(generator, 0))
        work[name] = partial(loader.batches, 0)
    print(head("Batches of images", "python benchmarks/images.py"))
    print(columns("augmentation", "ms per step", "images per second"))
    for name, seconds in seconds_in_rounds(work, options.rounds).items():
        milliseconds = median_ms(seconds)
        print(row(name, f"{milliseconds:.1f}", f"{1e3 * WORKERS * BATCH / milliseconds:,.0f}"))


if __name__ == "__main__":
    main()
