"""Crop, flip and rotation against slicing, counting, and torchvision's own rotation."""

import pytest
import torch
import torch.nn.functional as F

import data.images.augment
import data.torchvision_shim  # must precede the first import of torchvision
from compressors.core.randomness import generator
from data.classification import ClassificationDataset, Split
from data.images.augment import Augmentation, _crop, _rotate


def images(*shape: int) -> torch.Tensor:
    """Pixels in [1, 2), which differ from the padding's zeros."""
    return 1 + torch.rand(shape, generator=generator(0, "images"))


def test_crop_is_a_slice_of_the_padded_image() -> None:
    original = images(9, 3, 5, 7)
    padded = F.pad(original, [2] * 4)
    offsets = torch.tensor([[0, 0, 4, 4, 2, 1, 3, 0, 2], [0, 4, 0, 4, 2, 3, 1, 1, 0]])
    cropped = _crop(padded, offsets, 2)
    assert cropped.shape == original.shape
    for sample, (row, column) in enumerate(offsets.T.tolist()):
        assert torch.equal(cropped[sample], padded[sample, :, row : row + 5, column : column + 7])
    assert torch.equal(cropped[4], original[4])


def test_random_crops_reach_every_offset_equally_often() -> None:
    one = images(1, 1, 4, 4)
    padded = F.pad(one, [1] * 4)[0]
    windows = [padded[:, row : row + 4, column : column + 4] for row in range(3) for column in range(3)]
    cropped = Augmentation(padding=1)(one.expand(1800, -1, -1, -1), generator(0))
    matches = torch.stack([(cropped == window).flatten(1).all(1) for window in windows])
    assert matches.sum(0).tolist() == [1] * 1800
    assert matches.sum(1).min() >= 150  # 200 expected, standard deviation 13
    assert matches.sum(1).max() <= 250


def test_half_of_the_images_are_flipped_left_to_right() -> None:
    original = images(2000, 2, 3, 4)
    result = Augmentation(flip=True)(original, generator(0))
    flipped = (result == original.flip(3)).flatten(1).all(1)
    kept = (result == original).flatten(1).all(1)
    assert (flipped ^ kept).all()
    assert int(flipped.sum()) == pytest.approx(1000, abs=90)  # four standard deviations


def test_rotation_by_zero_is_the_identity() -> None:
    for shape in ((2, 3, 32, 32), (2, 1, 28, 28), (1, 1, 31, 33), (2, 2, 5, 8)):
        assert torch.equal(_rotate(images(*shape), torch.zeros(shape[0])), images(*shape))


def test_rotation_by_right_angles_is_rot90() -> None:
    """Positive angles turn clockwise, rot90 counter-clockwise; every image has its own angle."""
    original = images(4, 3, 8, 8)
    rotated = _rotate(original, torch.tensor([0.0, 90.0, 180.0, -90.0]))
    for sample, turns in enumerate([0, -1, 2, 1]):
        assert torch.equal(rotated[sample], original[sample].rot90(turns, (1, 2))), turns


@pytest.mark.parametrize("shape", [(32, 32), (33, 33), (20, 40)])
@pytest.mark.parametrize("degrees", [-15.0, -7.3, 5.0, 12.5, 45.0])
def test_rotation_is_torchvisions(shape: tuple[int, int], degrees: float) -> None:
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.functional import rotate

    original = images(1, 3, *shape)
    ours = _rotate(original, torch.tensor([degrees]))
    theirs = rotate(original, -degrees, InterpolationMode.NEAREST, fill=0)
    different = (ours != theirs).any(1).sum()
    assert different <= 0.005 * shape[0] * shape[1]
    assert (ours == 0).any()


def test_angles_are_uniform_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(data.images.augment, "_rotate", lambda batch, degrees: seen.append(degrees) or batch)
    Augmentation(rotation=15)(torch.zeros(2000, 1, 2, 2), generator(0))
    (degrees,) = seen
    assert degrees.abs().max() <= 15
    expected = torch.linspace(-15, 15, 2000)
    assert (degrees.sort().values - expected).abs().max() < 1  # Kolmogorov-Smirnov, p = 0.02


def test_everything_off_changes_nothing() -> None:
    stream = generator(0)
    before = stream.get_state()
    assert torch.equal(Augmentation()(images(3, 3, 8, 8), stream), images(3, 3, 8, 8))
    assert torch.equal(stream.get_state(), before)


ALL = Augmentation(padding=2, flip=True, rotation=15)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("rotation", [0, 15])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_has_the_bits_of_its_images_one_by_one(
    channels: int, rotation: float, dtype: torch.dtype
) -> None:
    """Each image is scaled, padded, cut and flipped alone; the normalised bits and the draws are the same."""
    pixels = torch.randint(256, (50, channels, 9, 8), generator=generator(0, "pixels"), dtype=torch.uint8)
    given = pixels if dtype == torch.uint8 else pixels.float() / 255
    part = Split(given, torch.zeros(len(given), dtype=torch.int64))
    mean, std = (0.4914, 0.4822, 0.4465)[:channels], (0.2023, 0.1994, 0.2010)[:channels]
    own = Augmentation(padding=4, flip=True, rotation=rotation)
    dataset = ClassificationDataset(
        train=part, test=part, num_classes=1, mean=mean, std=std, augmentation=own
    )
    indices = torch.randperm(50, generator=generator(0, "order"))[:40]
    stream, draws = generator(0, "draws"), generator(0, "draws")
    found = dataset.train_batch(indices, stream).inputs

    offsets = torch.randint(9, (2, 40), generator=draws)
    flips = torch.rand(40, generator=draws) < 0.5
    expected = torch.empty(40, channels, 9, 8)
    for image, index, row, column, flip in zip(expected, indices, *offsets, flips, strict=True):
        padded = torch.zeros(channels, 17, 16)
        padded[:, 4:13, 4:12] = pixels[index].float() / 255
        cut = padded[:, row : row + 9, column : column + 8]
        image.copy_(cut.flip(2) if flip else cut)
    if rotation:
        expected = _rotate(expected, (2 * torch.rand(40, generator=draws) - 1) * rotation)
    for channel in range(channels):
        expected[:, channel] = (expected[:, channel] - torch.tensor(mean[channel])) / torch.tensor(
            std[channel]
        )
    assert torch.equal(found, expected)
    assert torch.equal(stream.get_state(), draws.get_state())


def test_input_is_left_alone_and_shape_and_dtype_stay() -> None:
    original = images(4, 3, 9, 8)
    result = ALL(original, generator(0))
    assert torch.equal(original, images(4, 3, 9, 8))
    assert result.shape == original.shape
    assert result.dtype == original.dtype


def test_the_stream_alone_decides() -> None:
    """Other workers' draws and torch's global random state have no effect; the latter does not change."""
    batch = images(16, 3, 8, 8)
    expected = {worker: ALL(batch, generator("augment", 0, 5, worker)) for worker in range(3)}
    before = torch.get_rng_state()
    for worker in (2, 0, 1):
        assert torch.equal(ALL(batch, generator("augment", 0, 5, worker)), expected[worker])
    assert torch.equal(torch.get_rng_state(), before)


def test_workers_and_steps_draw_differently() -> None:
    batch = images(16, 3, 8, 8)
    results = [ALL(batch, generator("augment", 0, step, worker)) for step in range(2) for worker in range(2)]
    for i, one in enumerate(results):
        assert not any(torch.equal(one, other) for other in results[:i])


def test_images_of_a_batch_draw_differently() -> None:
    result = ALL(images(1, 1, 8, 8).expand(16, -1, -1, -1), generator(0))
    assert len(result.flatten(1).unique(dim=0)) >= 14
