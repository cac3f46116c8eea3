"""Transformer language model (Vaswani et al., 2017, https://arxiv.org/abs/1706.03762): a decoder alone.

Deviations from the paper: there is no encoder, and each layer normalises its input instead of its output
(Xiong et al., 2020, https://arxiv.org/abs/2002.04745), so that training does not need a warm-up.
"""

import math

import torch
from torch import Tensor, nn

from data.checks import require_count, require_memory, require_share

_LONGEST_PERIOD = 10_000  # of the position's sines, in tokens, over 2 pi


class TransformerLanguageModel(nn.Module):
    """Embedding, sines of the position, causal layers, and a decoder with the embedding's weight.

    The embedding is drawn from N(0, 1 / width) and multiplied by sqrt(width) at the input. The layers have
    torch's initial weights.
    """

    def __init__(self, num_words: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, width)
        # nn.TransformerEncoder would copy one layer, so all layers would have the same initial weights.
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.decoder = nn.Linear(width, num_words, bias=False)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, hidden: tuple[()] | None = None) -> tuple[Tensor, tuple[()]]:
        """Logits [B, T, V] of the token after each of ``tokens`` [B, T], and an empty state.

        Each token attends to itself and to the tokens before it in the window of T tokens.
        """
        length, width = tokens.shape[1], self.embedding.embedding_dim
        states = self.embedding(tokens) * math.sqrt(width) + sines(length, width, tokens.device)
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        states = self.dropout(states)
        for layer in self.layers:
            states = layer(states, src_mask=mask, is_causal=True)
        return self.decoder(self.norm(states)), ()


def sines(length: int, width: int, device: torch.device) -> Tensor:
    """Sines and cosines [T, width] of the positions 0 to T - 1; ``width`` is even."""
    positions = torch.arange(length, device=device)[:, None]
    rates = _LONGEST_PERIOD ** -(torch.arange(0, width, 2, device=device) / width)
    return torch.stack([(positions * rates).sin(), (positions * rates).cos()], -1).flatten(1)


def transformer(
    *, num_words: int, width: int = 512, layers: int = 6, heads: int = 8, dropout: float = 0.1
) -> nn.Module:
    """A Transformer over words, by default in the paper's base size.

    Its attention reaches back to the start of the window of data.bptt tokens. 35,953,664 parameters for
    WikiText-2's 33,278 words. Raises ``ValueError`` for counts below 1, a width that is odd or no multiple
    of ``heads``, and a dropout outside [0, 1).
    """
    require_count("model.width", width)
    require_count("model.layers", layers, maximum=1000)
    require_count("model.heads", heads)
    require_share("model.dropout", dropout)
    if width % 2 or width % heads:
        raise ValueError(f"model.width must be even and a multiple of model.heads={heads}, got {width}")
    require_memory("model.width", width, 4 * width * (num_words + 12 * width * layers))
    return TransformerLanguageModel(num_words, width, layers, heads, dropout)
