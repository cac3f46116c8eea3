"""The LSTM language model: its size, its start, its state."""

import pytest
import torch

from models.lstm import lstm


def test_parameters_of_the_paper() -> None:
    with torch.device("meta"):
        model = lstm(vocabulary_size=28_869)
    assert sum(p.numel() for p in model.parameters()) == 28_949_319
    assert model.decoder.weight is model.embedding.weight


def test_start() -> None:
    model = lstm(vocabulary_size=500, width=20)
    weight = model.embedding.weight
    assert weight.min() < -0.099
    assert weight.max() > 0.099
    assert weight.abs().max() <= 0.1
    assert not model.decoder.bias.any()


def test_state_goes_on_where_it_ended() -> None:
    model = lstm(vocabulary_size=9, width=6, layers=2, dropout=0.4).eval()
    tokens = torch.arange(18).view(2, 9) % 9
    whole, end = model(tokens)
    first, hidden = model(tokens[:, :4])
    second, last = model(tokens[:, 4:], hidden)
    assert whole.shape == (2, 9, 9)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(last, end)
    assert [part.shape for part in end] == [(2, 2, 6)] * 2


def test_dropout_before_between_and_after() -> None:
    """Each place by itself makes two passes differ in training, and none does in evaluation."""
    tokens = torch.arange(8).view(1, 8)
    for layers in (1, 2):
        model = lstm(vocabulary_size=8, width=6, layers=layers, dropout=0.4)
        assert model.lstm.dropout == (0.4 if layers > 1 else 0)
        assert not torch.equal(model(tokens)[0], model(tokens)[0])
        model.eval()
        assert torch.equal(model(tokens)[0], model(tokens)[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "model.width must be an integer >= 1, got 0"),
        ({"layers": 1.5}, "model.layers must be an integer >= 1, got 1.5"),
        ({"dropout": 1}, r"model.dropout must be in \[0, 1\), got 1"),
        ({"dropout": "0.1"}, r"model.dropout must be in \[0, 1\), got '0.1'"),
    ],
)
def test_settings_that_are_no_good(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lstm(vocabulary_size=10, **settings)
