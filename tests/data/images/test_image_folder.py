"""Folders of images: found files, decoding, and refusals before training."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import write_image, write_tree
from PIL import Image

import data.images.folder
from data.classification import ClassificationDataset
from data.images.augment import Augmentation
from data.images.folder import image_folder, imagenet
from data.images.reader import ImageReader
from data.images.streamed import StreamedImages

COUNTS = {"cat": 4, "ant": 3}


def by_class(pixels: list[np.ndarray]) -> torch.Tensor:
    images = torch.from_numpy(np.stack(pixels))
    return images[:, None] if images.dim() == 3 else images.permute(0, 3, 1, 2)


def message(*words: str, error: type[Exception], **settings: object) -> None:
    with pytest.raises(error) as refusal:
        image_folder(**settings)
    text = str(refusal.value)
    assert all(word in text for word in words), text
    assert "\n" not in text


def test_train_and_test_are_read_in_order_of_class_and_path(tmp_path: Path) -> None:
    train = write_tree(tmp_path / "few/train", COUNTS)
    test = write_tree(tmp_path / "few/test", {"ant": 1, "cat": 2})
    (tmp_path / "few/train/ant/notes.txt").write_text("no image")
    dataset = image_folder(name="few", root=str(tmp_path))
    assert isinstance(dataset, ClassificationDataset)
    assert dataset.train.inputs.dtype == torch.uint8
    assert torch.equal(dataset.train.inputs, by_class(train))
    assert torch.equal(dataset.test.inputs, by_class(test))
    assert dataset.train.targets.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert dataset.test.targets.tolist() == [0, 1, 1]
    assert list(dataset.held_out) == ["test"]
    assert dataset.model_arguments() == {"input_shape": (3, 6, 8), "num_classes": 2}
    assert dataset.augmentation == Augmentation(padding=0, flip=True)


def test_names_with_a_leading_dot_are_skipped(tmp_path: Path) -> None:
    train = write_tree(tmp_path / "few/train", COUNTS)
    write_tree(tmp_path / "few/test", COUNTS)
    write_image(tmp_path / "few/train/.ipynb_checkpoints/0.png", 1)
    write_image(tmp_path / "few/test/ant/.ipynb_checkpoints/0.png", 1)
    (tmp_path / "few/train/ant/._0.png").write_text("no image")
    dataset = image_folder(name="few", root=str(tmp_path))
    assert isinstance(dataset, ClassificationDataset) and dataset.num_classes == 2
    assert torch.equal(dataset.train.inputs, by_class(train)) and len(dataset.test) == 7


@pytest.mark.parametrize("parts", ["train test", "."])
def test_a_single_class_is_refused(parts: str, tmp_path: Path) -> None:
    for part in parts.split():
        write_tree(tmp_path / "few" / part, {"cat": 4})
    held_out = 0.5 if parts == "." else None
    said = "must have a folder for each of two classes or more, got cat"
    message(said, error=ValueError, name="few", root=str(tmp_path), held_out=held_out)


def test_val_is_the_test_split_or_beside_it_the_validation_split(tmp_path: Path) -> None:
    write_tree(tmp_path / "few/train", COUNTS)
    val = write_tree(tmp_path / "few/val", COUNTS, size=(8, 6))
    alone = image_folder(name="few", root=str(tmp_path))
    assert list(alone.held_out) == ["test"] and torch.equal(alone.test.inputs, by_class(val))
    write_tree(tmp_path / "few/test", {"ant": 2, "cat": 1})
    for memory in (4, 0):
        both = image_folder(name="few", root=str(tmp_path), memory_gib=memory)
        assert {name: len(part) for name, part in both.held_out.items()} == {"validation": 7, "test": 3}


def test_a_tree_without_splits_is_cut_by_class_and_the_same_way_every_time(tmp_path: Path) -> None:
    pixels = by_class(write_tree(tmp_path / "few", {"ant": 10, "bee": 5, "cat": 20}))
    dataset = image_folder(name="few", root=str(tmp_path), held_out=0.2)
    assert dataset.test.targets.bincount().tolist() == [2, 1, 4]
    assert dataset.train.targets.bincount().tolist() == [8, 4, 16]
    known = {bytes(image.contiguous().numpy()) for image in pixels}
    found = [
        bytes(image.numpy()) for part in (dataset.train, dataset.test) for image in part.inputs.contiguous()
    ]
    assert len(found) == len(known) == 35 and set(found) == known
    again = image_folder(name="few", root=str(tmp_path), held_out=0.2, memory_gib=0)
    assert torch.equal(again.held_out["test"].targets, dataset.test.targets)
    batch = again.held_out_batch("test", torch.arange(7))
    assert torch.equal(batch.inputs, dataset.held_out_batch("test", torch.arange(7)).inputs)


@pytest.mark.parametrize(
    ("modes", "channels"), [(("L", "L"), 1), (("L", "RGB"), 3), (("RGBA", "RGBA"), 3), (("LA", "1"), 1)]
)
def test_images_are_grey_only_if_all_are(tmp_path: Path, modes: tuple[str, str], channels: int) -> None:
    train = [write_image(tmp_path / f"few/train/{name}/0.png", 1, mode=modes[0]) for name in "ab"]
    for name in "ab":
        write_image(tmp_path / f"few/test/{name}/0.png", 9, mode=modes[1])
    dataset = image_folder(name="few", root=str(tmp_path))
    assert dataset.model_arguments()["input_shape"] == (channels, 6, 8)
    first = torch.from_numpy(train[0] if train[0].ndim == 3 else train[0][:, :, None])
    colours = 1 if modes[0] in ("L", "LA") else 3
    assert torch.equal(dataset.train.inputs[0], first[:, :, :colours].permute(2, 0, 1).expand(channels, 6, 8))
    if channels == 1:
        as_colour = image_folder(name="few", root=str(tmp_path), channels=3)
        assert torch.equal(as_colour.train.inputs, dataset.train.inputs.expand(-1, 3, -1, -1))


def test_mean_and_std_are_those_of_the_training_split_or_given(tmp_path: Path) -> None:
    train = by_class(write_tree(tmp_path / "few/train", COUNTS)).double() / 255
    write_tree(tmp_path / "few/test", COUNTS, size=(8, 6))
    for memory in (4, 0):
        dataset = image_folder(name="few", root=str(tmp_path), memory_gib=memory)
        assert dataset.mean == pytest.approx(train.mean((0, 2, 3)).tolist(), rel=1e-12)
        assert dataset.std == pytest.approx(train.std((0, 2, 3), correction=0).tolist(), rel=1e-12)
    given = image_folder(name="few", root=str(tmp_path), mean=[0.0, 0.1, 0.2])
    assert given.mean == (0.0, 0.1, 0.2) and given.std == dataset.std


def test_mean_and_std_of_many_are_those_of_evenly_spaced_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = write_tree(tmp_path / "few/train", {"ant": 6, "bee": 6})
    write_tree(tmp_path / "few/test", {"ant": 1, "bee": 1})
    monkeypatch.setattr(data.images.folder, "CHUNK", 2)
    monkeypatch.setattr(data.images.folder, "MEASURED", 5)
    some = np.stack([pixels[place] for place in (0, 2, 4, 7, 9)]) / 255
    for memory in (4, 0):
        dataset = image_folder(name="few", root=str(tmp_path), memory_gib=memory)
        assert dataset.mean == pytest.approx(some.mean((0, 1, 2)).tolist(), rel=1e-12)
        assert dataset.std == pytest.approx(some.std((0, 1, 2)).tolist(), rel=1e-12)


def test_resized_images_show_the_middle_at_seven_eighths(tmp_path: Path) -> None:
    """A bright square in the middle of a wide dark image stays in the middle; both ends are cut off."""
    pixels = np.zeros((80, 160, 3), dtype=np.uint8)
    pixels[20:60, 60:100] = 250
    for split in ("train", "test"):
        (tmp_path / f"few/{split}/a").mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / f"few/{split}/a/0.png")
        write_image(tmp_path / f"few/{split}/b/0.png", 1, size=(30, 20))
    dataset = image_folder(name="few", root=str(tmp_path), image_size=28, augment=False)
    assert isinstance(dataset, ClassificationDataset)
    image = dataset.train.inputs[0].float()
    assert image.shape == (3, 28, 28)
    assert torch.equal(image, image.flip(2)) and torch.equal(image, image.flip(1))
    assert image[:, 14, 14].tolist() == [250] * 3
    bright = (image[0, 14] > 125).sum().item()
    assert bright == 16  # 40 of 80 pixels became 32 * 40 / 80
    assert image[:, 0].max() == 0


def test_settings_are_checked(tmp_path: Path) -> None:
    write_tree(tmp_path / "few/train", COUNTS)
    write_tree(tmp_path / "few/test", COUNTS)
    bad = {
        "image_size": [0, 1.5, "8", True],
        "channels": [2, "3", True],
        "held_out": [0, 1, -0.1, "0.2"],
        "memory_gib": [-1, None, "4"],
        "decoders": [0, 1.5, None],
        "augment": ["no", None],
        "mean": [0.5, [0.5], "abc", [0.1, 0.2, None]],
        "std": [[1.0, 1.0], [0.5, 0.5, 0.0]],
        "partition": ["random"],
    }
    for setting, values in bad.items():
        for value in values:
            settings = {"name": "few", "root": str(tmp_path), setting: value}
            message(f"data.{setting} must be", repr(value), error=ValueError, **settings)


def test_missing_folders_are_named(tmp_path: Path) -> None:
    where = {"name": "few", "root": str(tmp_path)}
    message(str(tmp_path / "few"), "data.root", error=FileNotFoundError, **where)
    write_tree(tmp_path / "few/train", COUNTS)
    message("neither a test nor a val folder", str(tmp_path / "few"), error=FileNotFoundError, **where)
    write_tree(tmp_path / "few/test", COUNTS)
    message("data.held_out must be null", "0.2", error=ValueError, held_out=0.2, **where)
    message("data.held_out", "few/train", error=ValueError, name="few/train", root=str(tmp_path))


def test_classes_must_agree_and_have_images(tmp_path: Path) -> None:
    where = {"name": "few", "root": str(tmp_path)}
    write_tree(tmp_path / "few/train", {**COUNTS, "dog": 1, "eel": 1, "fox": 1, "gnu": 1})
    write_tree(tmp_path / "few/test", COUNTS)
    message("test must have the classes of", "lacks dog, eel, fox and 1 more", error=ValueError, **where)
    write_tree(tmp_path / "few/test", {"dog": 1, "eel": 1, "fox": 1, "gnu": 1, "yak": 1})
    message("adds yak", error=ValueError, **where)
    (tmp_path / "few/train/yak").mkdir()
    message("few/train has no images", "of yak", error=ValueError, **where)


def test_a_cut_that_leaves_a_class_empty_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path / "few", {"ant": 10, "bee": 2})
    where = {"name": "few", "root": str(tmp_path)}
    message("held_out=0.2", "test split without images of bee", error=ValueError, held_out=0.2, **where)
    message("held_out=0.9", "training split without", "bee", error=ValueError, held_out=0.9, **where)
    message("has no train folder", "data.held_out", error=ValueError, **where)


def test_images_of_several_sizes_need_an_image_size(tmp_path: Path) -> None:
    where = {"name": "few", "root": str(tmp_path)}
    write_tree(tmp_path / "few/train", COUNTS)
    write_tree(tmp_path / "few/test", COUNTS)
    write_image(tmp_path / "few/test/cat/7.png", 0, size=(9, 6))
    for memory in (4, 0):
        message("data.image_size", "8x6", "cat/7.png 9x6", error=ValueError, memory_gib=memory, **where)
    assert image_folder(image_size=6, **where).model_arguments()["input_shape"] == (3, 6, 6)


@pytest.mark.parametrize("damage", ["text", "cut", "empty"])
def test_an_unreadable_image_is_named_before_training(tmp_path: Path, damage: str) -> None:
    write_tree(tmp_path / "few/train", COUNTS)
    write_tree(tmp_path / "few/test", COUNTS)
    path = tmp_path / "few/train/cat/2.png"
    content = path.read_bytes()
    path.write_bytes({"text": b"no image", "cut": content[: len(content) // 2], "empty": b""}[damage])
    message(f"{path} cannot be read as an image", error=OSError, name="few", root=str(tmp_path))


def test_deep_pixels_are_refused_rather_than_cut_off(tmp_path: Path) -> None:
    write_tree(tmp_path / "few/train", COUNTS, mode="L")
    write_tree(tmp_path / "few/test", COUNTS, mode="L")
    path = tmp_path / "few/train/cat/2.png"
    Image.fromarray(np.full((6, 8), 40_000, dtype=np.uint16)).save(path)
    message(str(path), "mode I;16", "8 bits", error=OSError, name="few", root=str(tmp_path))


def test_constant_images_have_no_std(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "test/a", "test/b"):
        (tmp_path / "few" / place).mkdir(parents=True)
        Image.new("L", (4, 4), 7).save(tmp_path / "few" / place / "0.png")
    message("data.std must be given", "channel 0", error=ValueError, name="few", root=str(tmp_path))
    found = image_folder(name="few", root=str(tmp_path), std=[0.5])
    assert (found.mean, found.std) == ((7 / 255,), (0.5,))


def test_other_formats_are_read(tmp_path: Path) -> None:
    pixels = write_image(tmp_path / "a.bmp", 1)
    for suffix in ("bmp", "ppm", "tif", "webp", "jpg", "JPEG"):
        Image.fromarray(pixels).save(
            tmp_path / f"b.{suffix}", **({"lossless": True} if suffix == "webp" else {})
        )
        image = ImageReader(channels=3, size=None, height=6, width=8).read(str(tmp_path / f"b.{suffix}"))
        if suffix.lower() in ("jpg", "jpeg"):
            assert image.shape == (3, 6, 8)
        else:
            assert np.array_equal(image.permute(1, 2, 0).numpy(), pixels), suffix


def test_imagenet_says_where_to_put_it_and_counts_its_classes(tmp_path: Path) -> None:
    settings = {"name": "imagenet", "root": str(tmp_path), "image_size": 16, "channels": 3, "decoders": 1}
    with pytest.raises(FileNotFoundError, match=f"{re.escape(str(tmp_path))}/imagenet/train/CLASS"):
        imagenet(**settings)
    counts = {f"n{label:04}": 1 for label in range(999)}
    pixels = write_tree(tmp_path / "one", {"a": 1})
    assert pixels
    content = (tmp_path / "one/a/0.png").read_bytes()
    for split in ("train", "val"):
        for name in counts:
            (tmp_path / f"imagenet/{split}/{name}").mkdir(parents=True)
            (tmp_path / f"imagenet/{split}/{name}/0.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"imagenet must have ImageNet's 1000 classes, got 999"):
        imagenet(**settings)
    for split in ("train", "val"):
        (tmp_path / f"imagenet/{split}/n0999").mkdir()
        (tmp_path / f"imagenet/{split}/n0999/0.png").write_bytes(content)
    dataset = imagenet(**settings)
    assert isinstance(dataset, StreamedImages)
    assert dataset.model_arguments() == {"input_shape": (3, 16, 16), "num_classes": 1000}
    assert (len(dataset.train), len(dataset.held_out["test"])) == (1000, 1000)
    assert dataset.held_out_batch("test", torch.tensor([3])).targets.tolist() == [3]


def test_no_image_starts_another_program(tmp_path: Path) -> None:
    """Pillow determines the format from the content, and starts Ghostscript for EPS."""
    path = tmp_path / "x.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 6\n%%EndComments\nshowpage\n%%EOF\n")
    with Image.open(path) as image:
        assert image.format == "EPS"
    with pytest.raises(OSError, match=f"{path} cannot be read as an image: none of JPEG, PNG, PPM"):
        ImageReader(channels=3, size=None, height=6, width=8).read(str(path))


def test_linked_folders_are_read(tmp_path: Path) -> None:
    elsewhere = write_tree(tmp_path / "elsewhere", {"ant": 2, "bee": 1})
    (tmp_path / "few").mkdir()
    for split in ("train", "test"):
        (tmp_path / "few" / split).symlink_to(tmp_path / "elsewhere")
    dataset = image_folder(name="few", root=str(tmp_path))
    assert torch.equal(dataset.train.inputs, by_class(elsewhere))
