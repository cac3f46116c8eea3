"""The LSTM language model: size, initialisation, state, dropout, refusals."""

import pytest
import torch
from torch import nn

from models.lstm import lstm


def test_parameters_of_the_paper() -> None:
    with torch.device("meta"):
        model = lstm(num_words=28_869)
    assert sum(p.numel() for p in model.parameters()) == 28_949_319
    assert model.decoder.weight is model.embedding.weight


def test_start() -> None:
    model = lstm(num_words=500, width=20)
    weight = model.embedding.weight
    assert weight.min() < -0.099
    assert weight.max() > 0.099
    assert weight.abs().max() <= 0.1
    assert not model.decoder.bias.any()


def test_state_goes_on_where_it_ended() -> None:
    model = lstm(num_words=9, width=6, layers=2, dropout=0.4).eval()
    tokens = torch.arange(18).view(2, 9) % 9
    whole, end = model(tokens)
    first, hidden = model(tokens[:, :4])
    second, last = model(tokens[:, 4:], hidden)
    assert whole.shape == (2, 9, 9)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(last, end)
    assert [part.shape for part in end] == [(2, 2, 6)] * 2


@pytest.mark.parametrize("layers", [1, 3])
def test_dropout_before_between_and_after(layers: int) -> None:
    tokens = torch.arange(8).view(1, 8)
    model = lstm(num_words=8, width=6, layers=layers, dropout=0.4)
    shares = []
    model.dropout.register_forward_hook(lambda _, given, out: shares.append((out == 0).float().mean()))
    once, again = model(tokens)[0], model(tokens)[0]
    assert len(shares) == 2 * (layers + 1)
    assert all(0.1 < share < 0.8 for share in shares)
    assert not torch.equal(once, again)
    torch.manual_seed(3)
    once = model(tokens)[0]
    torch.manual_seed(3)
    assert torch.equal(model(tokens)[0], once)
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


def test_layers_are_those_of_one_lstm() -> None:
    """The result equals that of torch's LSTM of several layers with the same weights."""
    model = lstm(num_words=9, width=6, layers=3, dropout=0.4).eval()
    whole = nn.LSTM(6, 6, 3, batch_first=True)
    own = {f"{k[:-1]}{n}": p for n, layer in enumerate(model.layers) for k, p in layer.named_parameters()}
    whole.load_state_dict(own)
    tokens, start = torch.arange(18).view(2, 9) % 9, (torch.randn(3, 2, 6), torch.randn(3, 2, 6))
    outputs, hidden = whole(model.embedding(tokens), start)
    logits, end = model(tokens, start)
    torch.testing.assert_close(logits, model.decoder(outputs))
    torch.testing.assert_close(end, hidden)


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
        lstm(num_words=10, **settings)
