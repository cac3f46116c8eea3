"""Images decoded batch by batch: equal to those in memory, dependent on the step alone, named in errors."""

import time
from functools import partial
from pathlib import Path

import pytest
import torch
from image_files import write_image, write_tree

import data.images.streamed
from compressors.core.randomness import generator
from data.images.folder import image_folder
from data.images.streamed import StreamedImages, StreamedLoader

STREAM = partial(generator, 0)


@pytest.fixture
def root(tmp_path: Path) -> str:
    write_tree(tmp_path / "few/train", {"ant": 9, "cat": 8}, size=(16, 16))
    write_tree(tmp_path / "few/test", {"ant": 2, "cat": 3}, size=(16, 16))
    return str(tmp_path)


def loader(dataset: StreamedImages, workers: int = 4, local_workers: range | None = None) -> StreamedLoader:
    return dataset.loader(workers, local_workers or range(workers), 3, STREAM)


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("settings", [{}, {"augment": False}, {"image_size": 8, "augment": False}])
def test_streamed_batches_are_those_from_memory(root: str, settings: dict) -> None:
    memory = image_folder(name="few", root=root, **settings)
    disk = image_folder(name="few", root=root, memory_gib=0, **settings)
    assert isinstance(disk, StreamedImages) and not isinstance(memory, StreamedImages)
    assert disk.model_arguments() == memory.model_arguments()
    assert disk.loader(4, range(4), 3, STREAM).epochs_per_step == 12 / 17
    from_memory, from_disk = memory.loader(4, range(4), 3, STREAM), loader(disk)
    for step in range(5):
        assert same(from_memory.batches(step), from_disk.batches(step))
    indices = torch.tensor([4, 0, 1])
    assert same([memory.held_out_batch("test", indices)], [disk.held_out_batch("test", indices)])


def test_batches_follow_from_step_and_worker_alone(root: str) -> None:
    dataset = image_folder(name="few", root=root, image_size=8)
    assert dataset.crops
    expected = {step: loader(dataset).batches(step) for step in range(4)}
    whole, jumping = loader(dataset), loader(dataset)
    for step in range(4):
        assert same(whole.batches(step), expected[step])
    for step in (3, 0, 2, 2):
        assert same(jumping.batches(step), expected[step])
    for part in (range(2), range(2, 4)):
        share = loader(dataset, local_workers=part)
        for step in range(4):
            assert same(share.batches(step), [expected[step][worker] for worker in part])
    assert not torch.equal(expected[0][0].inputs, expected[1][0].inputs)


def test_random_parts_are_taken_in_training_only(root: str) -> None:
    dataset = image_folder(name="few", root=root, image_size=8)
    middle = image_folder(name="few", root=root, image_size=8, augment=False)
    samples = torch.arange(5)
    held_out = dataset.held_out_batch("test", samples)
    assert same([held_out], [middle.held_out_batch("test", samples)])
    first, second = (loader(dataset, workers=1).batches(step)[0] for step in (0, 6))
    assert first.inputs.shape == second.inputs.shape == (3, 3, 8, 8)
    (cut,) = middle.loader(1, range(1), 3, STREAM).batches(0)
    assert torch.equal(cut.targets, first.targets)
    assert not torch.equal(cut.inputs, first.inputs)


def test_the_next_step_is_decoded_meanwhile(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    request = data.images.streamed.request

    def note(pool, reader, files, indices, *rest):
        asked.append(indices.tolist())
        return request(pool, reader, files, indices, *rest)

    monkeypatch.setattr(data.images.streamed, "request", note)
    dataset = image_folder(name="few", root=root, memory_gib=0)
    one = loader(dataset, workers=1)
    for step in range(3):
        one.batches(step)
        assert len(asked) == step + 2
    last = one._ahead[1][0].images
    deadline = time.monotonic() + 10
    while not all(image.done() for image in last) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(image.done() for image in last)


def test_an_unreadable_image_is_named_by_the_first_batch_that_needs_it(root: str) -> None:
    dataset = image_folder(name="few", root=root, memory_gib=0, mean=[0.5] * 3, std=[0.5] * 3)
    path = Path(root) / "few/train/cat/2.png"
    path.write_bytes(path.read_bytes()[:300])
    label = 9 + 2
    one = loader(dataset, workers=1)
    bad = next(
        step for step in range(20) if label in loader(dataset, workers=1).requests.samplers[0].batch(step)
    )
    for step in range(bad):
        one.batches(step)
    with pytest.raises(OSError, match=f"{path} cannot be read as an image") as refusal:
        one.batches(bad)
    assert "\n" not in str(refusal.value)


def test_an_image_that_changed_its_size_is_named(root: str) -> None:
    dataset = image_folder(name="few", root=root, memory_gib=0)
    path = Path(root) / "few/test/cat/2.png"
    write_image(path, 0, size=(15, 16))
    with pytest.raises(OSError, match=r"cat/2.png is 15x16 pixels, the first image 16x16"):
        dataset.held_out_batch("test", torch.arange(5))


def test_a_whole_pass_in_one_step(root: str) -> None:
    dataset = image_folder(name="few", root=root, memory_gib=0)
    whole = dataset.loader(4, range(4), None, STREAM)
    assert whole.epochs_per_step == 1.0
    assert sorted(len(batch.targets) for batch in whole.batches(0)) == [4, 4, 4, 5]
    assert dataset.facts() == {"classes": 2, "train images": 17, "test images": 5, "decoded": "per batch"}
