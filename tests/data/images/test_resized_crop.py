"""Random crops of images: inside the image, with torchvision's areas and ratios."""

import math

import pytest
import torch

from compressors.core.randomness import generator
from data.images.resized_crop import TRIES, crop_box, draw_crops


@pytest.mark.parametrize(("width", "height"), [(500, 375), (32, 32), (1, 1), (3, 200), (200, 3)])
def test_parts_lie_within_the_image(width: int, height: int) -> None:
    for draws in draw_crops(300, generator(0)):
        top, left, down, across = crop_box(draws, width, height)
        assert top >= 0 and left >= 0 and down >= 1 and across >= 1
        assert top + down <= height and left + across <= width


def test_areas_ratios_and_places_are_torchvisions() -> None:
    """Means and deviations of 4,000 boxes on an image of 500 x 400, compared with torchvision's."""
    from torchvision.transforms import RandomResizedCrop

    import data.torchvision_shim  # noqa: F401  has to come before the first import of torchvision

    torch.manual_seed(0)
    image = torch.empty(3, 400, 500)
    theirs = [RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)]
    ours = [crop_box(draws, 500, 400) for draws in draw_crops(4000, generator(0))]
    for measure in (
        lambda box: box[2] * box[3] / 200_000,
        lambda box: math.log(box[3] / box[2]),
        lambda box: box[0] / 400,
        lambda box: box[1] / 500,
    ):
        a, b = (
            torch.tensor([measure(box) for box in boxes], dtype=torch.float64) for boxes in (ours, theirs)
        )
        assert a.mean().item() == pytest.approx(b.mean().item(), abs=4 * a.std().item() / 2000**0.5)
        assert a.std().item() == pytest.approx(b.std().item(), rel=0.06)


def test_where_no_try_fits_the_middle_is_taken() -> None:
    assert crop_box(torch.full((TRIES, 4), 0.9), 400, 4) == (0, 197, 4, 5)
    assert crop_box(torch.full((TRIES, 4), 0.9), 4, 400) == (197, 0, 5, 4)
