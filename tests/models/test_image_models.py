"""Image networks: parameter counts, shapes for all image sizes, refusals."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from models.googlenet import googlenet, googlenet_cifar100
from models.resnet import PaddedShortcut, resnet18, resnet20, resnet34, resnet50, resnet110
from models.senet import SqueezeExcitationBlock, senet18, senet18_preactivation
from models.vgg import vgg11, vgg16, vgg19

Factory = Callable[..., nn.Module]
COUNTS = {  # 10 classes of 3x32x32, 100 classes of 3x32x32, 1000 classes of 3x224x224
    resnet18: (11_173_962, 11_220_132, 11_689_512),
    resnet20: (269_722, 275_572, None),
    resnet110: (1_727_962, 1_733_812, None),
    resnet34: (21_282_122, 21_328_292, 21_797_672),
    resnet50: (23_520_842, 23_705_252, 25_557_032),
    vgg11: (9_231_114, 9_277_284, 132_868_840),
    vgg16: (14_728_266, 14_774_436, 138_365_992),
    vgg19: (20_040_522, 20_086_692, 143_678_248),
    googlenet: (6_166_250, 6_258_500, 6_624_904),
    googlenet_cifar100: (6_310_314, 6_402_564, None),
    senet18: (11_389_726, 11_436_256, None),
    senet18_preactivation: (11_260_354, 11_306_524, 11_775_904),
}
# Slow: shallower networks have the same blocks, or test_released_networks.py computes them
COVERED = (resnet34, resnet50, resnet110, vgg16, vgg19, googlenet, googlenet_cifar100, senet18)
ONE_FORM = (resnet20, resnet110, googlenet_cifar100, senet18)
ALL = pytest.mark.parametrize("factory", COUNTS, ids=lambda factory: factory.__name__)
COVERED_ARE_SLOW = pytest.mark.parametrize(
    "factory",
    [pytest.param(f, marks=[pytest.mark.slow] * (f in COVERED)) for f in COUNTS],
    ids=lambda factory: factory.__name__,
)
WITH_VARIANT = pytest.mark.parametrize(
    "factory", [f for f in COUNTS if f not in ONE_FORM], ids=lambda factory: factory.__name__
)


def on_meta(factory: Factory, shape: tuple[int, ...], classes: int, **settings: object) -> nn.Module:
    with torch.device("meta"):
        return factory(input_shape=shape, num_classes=classes, **settings)


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@ALL
def test_counts_of_parameters(factory: Factory) -> None:
    from torchvision.models import get_model_weights

    ten, hundred, thousand = COUNTS[factory]
    assert num_parameters(on_meta(factory, (3, 32, 32), 10)) == ten
    assert num_parameters(on_meta(factory, (3, 32, 32), 100)) == hundred
    if thousand is not None:
        assert num_parameters(on_meta(factory, (3, 224, 224), 1000)) == thousand
    if factory not in (*ONE_FORM, senet18_preactivation):  # these are not in torchvision
        name = factory.__name__ + ("_bn" if factory.__name__.startswith("vgg") else "")
        assert get_model_weights(name).DEFAULT.meta["num_params"] == thousand


@COVERED_ARE_SLOW
@pytest.mark.parametrize(
    "shape",
    [(1, 8, 8), *(pytest.param(shape, marks=pytest.mark.slow) for shape in ((1, 28, 28), (3, 32, 32)))],
    ids=str,
)
def test_small_images_forward_and_backward(factory: Factory, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = factory(input_shape=shape, num_classes=7)
    outputs = model(torch.randn(2, *shape))
    assert outputs.shape == (2, 7)
    F.cross_entropy(outputs, torch.tensor([0, 6])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert model.eval()(torch.randn(1, *shape)).isfinite().all()


@WITH_VARIANT
def test_auto_goes_by_the_size(factory: Factory) -> None:
    counts = {
        (side, variant): num_parameters(on_meta(factory, (3, side, side), 10, variant=variant))
        for side in (64, 65)
        for variant in ("auto", "small", "imagenet")
    }
    assert counts[64, "auto"] == counts[64, "small"] != counts[64, "imagenet"]
    assert counts[65, "auto"] == counts[65, "imagenet"] != counts[65, "small"]


@WITH_VARIANT
def test_bad_variants_are_refused(factory: Factory) -> None:
    for variant in ("cifar", None):
        with pytest.raises(ValueError, match=r"model\.variant must be one of auto, small, imagenet, got"):
            factory(input_shape=(3, 32, 32), num_classes=10, variant=variant)
    with pytest.raises(ValueError, match=r"variant=imagenet needs images of at least 32 pixels, got 28"):
        factory(input_shape=(1, 28, 40), num_classes=10, variant="imagenet")


@ALL
def test_what_is_no_image_is_refused(factory: Factory) -> None:
    shape = (8, 8)
    with pytest.raises(ValueError, match=f"model={factory.__name__} needs images .* of shape"):
        factory(input_shape=shape, num_classes=10)


@pytest.mark.parametrize(
    "factory", [resnet18, resnet20, *(pytest.param(f, marks=pytest.mark.slow) for f in (resnet34, resnet50))]
)
def test_zero_init_residual_makes_every_block_start_as_its_shortcut(factory: Factory) -> None:
    for zero in (True, False):
        model = factory(input_shape=(1, 8, 8), num_classes=10, zero_init_residual=zero)
        last = "bn3" if factory is resnet50 else "bn2"
        blocks = [m for m in model.modules() if hasattr(m, "conv2")]
        assert len(blocks) == {resnet18: 8, resnet20: 9, resnet34: 16, resnet50: 16}[factory]
        assert all((getattr(block, last).weight == (0 if zero else 1)).all() for block in blocks)
    with pytest.raises(ValueError, match=r"model\.zero_init_residual must be true or false, got 'no'"):
        factory(input_shape=(1, 8, 8), num_classes=10, zero_init_residual="no")


def test_padded_shortcut_by_hand() -> None:
    image = torch.arange(1.0, 26).view(1, 1, 5, 5)
    result = PaddedShortcut(3)(image)
    assert result.shape == (1, 4, 3, 3)
    assert result[0, [0, 2, 3]].abs().sum() == 0
    assert result[0, 1].tolist() == [[1, 3, 5], [11, 13, 15], [21, 23, 25]]


@pytest.mark.parametrize(("side", "poolings"), [(1, 0), (3, 1), (8, 3), (28, 4), (32, 5), (64, 5)])
def test_vgg_leaves_out_poolings_that_would_leave_nothing(side: int, poolings: int) -> None:
    model = on_meta(vgg11, (1, side, side), 10, variant="small")
    assert sum(isinstance(m, nn.MaxPool2d) for m in model.modules()) == poolings
    assert sum(isinstance(m, nn.Conv2d) for m in model.modules()) == 8


def test_senet_block_by_hand() -> None:
    """out = shortcut + w(branch) * branch, with weights from the branch's mean over the pixels."""
    torch.manual_seed(0)
    block = SqueezeExcitationBlock(32, 32).eval()
    x = torch.randn(2, 32, 5, 5)
    branch = block.conv2(block.bn2(block.conv1(block.bn1(x).relu())).relu())
    squeezed = block.excitation.fc1(branch.mean((2, 3), keepdim=True)).relu()
    weights = block.excitation.fc2(squeezed).sigmoid()
    assert squeezed.shape == (2, 2, 1, 1)
    torch.testing.assert_close(block(x), x + weights * branch)
