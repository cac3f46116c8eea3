"""The Transformer language model: size, causality, initial weights, positions, dropout, refusals."""

import math

import pytest
import torch

from models.transformer import sines, transformer


def count(words: int, width: int, layers: int) -> int:
    """Parameters of the embedding, of every layer's attention, feed-forward part and norms, and of a norm."""
    attention = 4 * (width * width + width)
    feed_forward = 2 * 4 * width * width + 5 * width
    return words * width + layers * (attention + feed_forward + 4 * width) + 2 * width


def test_parameters() -> None:
    with torch.device("meta"):
        model = transformer(num_words=33_278)
    assert sum(p.numel() for p in model.parameters()) == count(33_278, 512, 6) == 35_953_664
    assert model.decoder.weight is model.embedding.weight


@pytest.mark.parametrize("is_training", [True, False])
def test_a_token_depends_on_no_later_one(is_training: bool) -> None:
    """Also without gradients, where torch computes a whole layer by one operator."""
    torch.manual_seed(0)
    model = transformer(num_words=50, width=16, layers=2, heads=2, dropout=0.0).train(is_training)
    tokens = torch.randint(50, (3, 9))
    changed = torch.cat([tokens[:, :5], (tokens[:, 5:] + 1) % 50], 1)
    with torch.inference_mode(not is_training):
        (logits, hidden), (others, _) = model(tokens), model(changed, ())
        shorter = model(tokens[:, :5])[0]
    assert logits.shape == (3, 9, 50) and hidden == ()
    assert torch.equal(others[:, :5], logits[:, :5])
    assert not torch.isclose(others[:, 5:], logits[:, 5:]).all(-1).any()
    torch.testing.assert_close(shorter, logits[:, :5])
    if not is_training:
        torch.testing.assert_close(model(tokens)[0], logits)


def test_layers_have_different_initial_weights_and_logits_are_of_order_one() -> None:
    torch.manual_seed(0)
    model = transformer(num_words=2000, width=64, layers=2, heads=4)
    one, other = (layer.linear1.weight for layer in model.layers)
    assert not torch.equal(one, other)
    assert model.embedding.weight.std().item() == pytest.approx(1 / 8, rel=0.02)
    assert 0.8 < model(torch.arange(2000).view(4, 500))[0].std() < 1.3


def test_positions_are_those_of_the_paper() -> None:
    """PE(t, 2i) = sin(t / 10000^(2i / width)), PE(t, 2i + 1) the cosine."""
    found = sines(40, 6, torch.device("cpu"))
    assert found.shape == (40, 6)
    for position in (0, 1, 39):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            expected = torch.tensor([math.sin(angle), math.cos(angle)])
            torch.testing.assert_close(found[position, 2 * i : 2 * i + 2], expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 20, "heads": 8}, "model.width must be even and a multiple of model.heads=8, got 20"),
        ({"layers": 1001}, "model.layers must be at most 1000, got 1001"),
        ({"dropout": 1}, r"model.dropout must be in \[0, 1\), got 1"),
        ({"width": 2**30}, f"model.width={2**30} takes "),
    ],
)
def test_settings_that_are_no_good(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transformer(num_words=10, **settings)
