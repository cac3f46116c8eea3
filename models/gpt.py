"""GPT: a decoder-only Transformer language model in today's form.

Radford et al., 2019 (GPT-2), with the parts of Llama (Touvron et al., 2023, https://arxiv.org/abs/2302.13971):
RMSNorm before each part of a layer, rotary positions (Su et al., 2021, https://arxiv.org/abs/2104.09864),
SwiGLU (Shazeer, 2020, https://arxiv.org/abs/2002.05202), no biases, no dropout. The output layer is the
embedding's transpose.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.checks import require_memory, shown

EPSILON = 1e-6  # of RMSNorm
STANDARD_DEVIATION = 0.02  # of the initial weights
LONGEST_PERIOD = 10_000  # of the rotations, in tokens, over 2 pi


class Size(NamedTuple):
    """Sizes of a network; the feed-forward layers are 8/3 times as wide, rounded up to a multiple of 8."""

    layers: int
    width: int
    heads: int


SIZES = {"tiny": Size(2, 128, 4), "mini": Size(5, 256, 4), "small": Size(12, 768, 12)}


class Layer(nn.Module):
    """Attention to the tokens before, and a feed-forward layer; each is added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.hidden = heads, 8 * math.ceil(width / 3)
        self.attention_norm = nn.RMSNorm(width, EPSILON)
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.feed_forward_norm = nn.RMSNorm(width, EPSILON)
        self.gate_up = nn.Linear(width, 2 * self.hidden, bias=False)
        self.feed_forward_out = nn.Linear(self.hidden, width, bias=False)

    def forward(self, states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """[B, T, width] to the same shape; ``cosines`` and ``sines`` [T, width / heads] of the rotations."""
        heads = self.queries_keys_values(self.attention_norm(states)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)  # each [B, heads, T, width / heads]
        queries, keys = (rotated(each, cosines, sines) for each in (queries, keys))
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        states = states + self.attention_out(mixed.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.feed_forward_norm(states)).chunk(2, -1)
        return states + self.feed_forward_out(F.silu(gate) * up)


class GPT(nn.Module):
    """Embedding, layers, a norm, and a decoder with the embedding's weight.

    Weights are drawn from N(0, 0.02^2), in the layers' output projections divided by sqrt(2 layers).
    """

    def __init__(self, num_words: int, size: Size) -> None:
        super().__init__()
        layers, width, heads = size
        self.head_width = width // heads
        self.embedding = nn.Embedding(num_words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width, EPSILON)
        self.decoder = nn.Linear(width, num_words, bias=False)
        self.decoder.weight = self.embedding.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                is_residual = name.endswith("_out.weight")
                deviation = STANDARD_DEVIATION / (math.sqrt(2 * layers) if is_residual else 1)
                nn.init.normal_(parameter, std=deviation)

    def forward(self, tokens: Tensor, hidden: tuple[()] | None = None) -> tuple[Tensor, tuple[()]]:
        """Logits [B, T, V] of the token after each of ``tokens`` [B, T], and an empty state.

        Each token attends to itself and to the tokens before it in the window of T tokens.
        """
        cosines, sines = rotations(tokens.shape[1], self.head_width, tokens.device)
        states = self.embedding(tokens)
        for layer in self.layers:
            states = layer(states, cosines, sines)
        return self.decoder(self.norm(states)), ()


def rotations(length: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, width] of the angles of the positions 0 to T - 1."""
    rates = LONGEST_PERIOD ** -(torch.arange(0, width, 2, device=device) / width)
    angles = torch.outer(torch.arange(length, device=device), rates).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """``x`` [..., T, width] with the pairs (i, i + width / 2) rotated by the position's angles."""
    first, second = x.chunk(2, -1)
    return (x * cosines + torch.cat([-second, first], -1) * sines).to(x.dtype)


def gpt(*, num_words: int, size: str = "tiny") -> nn.Module:
    """A GPT over ``num_words`` tokens in one of ``SIZES``.

    Beside the embedding tiny has 0.40, mini 3.96 and small 84.95 million parameters; small has 123.5 million
    with GPT-2's 50,257 tokens. Raises ``ValueError`` for another size.
    """
    if not isinstance(size, str) or size not in SIZES:
        raise ValueError(f"model.size must be one of {', '.join(SIZES)}, got {shown(size)}")
    require_memory("data.vocabulary_size", num_words, 4 * num_words * SIZES[size].width)
    return GPT(num_words, SIZES[size])
