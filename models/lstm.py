"""LSTM language model (Hochreiter and Schmidhuber, 1997; Zaremba et al., 2014, https://arxiv.org/abs/1409.2329).

The output layer is tied to the embedding (Press and Wolf, 2017, https://arxiv.org/abs/1608.05859).
"""

import torch
from torch import Tensor, nn

from data.checks import require_count, require_memory, require_share


class LSTMLanguageModel(nn.Module):
    """Embedding, LSTM layers and a decoder with the embedding's weight; dropout before, between and after.

    The embedding is initialised uniformly in [-0.1, 0.1], the decoder's bias with 0, and the LSTM's weights
    by torch's default, uniformly in [-1, 1] / sqrt(width).
    """

    # One nn.LSTM per layer. On CUDA the dropout between the layers of a single nn.LSTM uses a state of cuDNN
    # that torch.manual_seed does not set, so it would depend on the process.

    def __init__(self, num_words: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, width)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.decoder = nn.Linear(width, num_words)
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.decoder.weight = self.embedding.weight

    def forward(
        self, tokens: Tensor, hidden: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits [B, T, V] of the token after each of ``tokens`` [B, T], and the state after the last one.

        The state is two tensors [layers, B, width]; None means zeros.
        """
        outputs, ends = self.dropout(self.embedding(tokens)), []
        for number, layer in enumerate(self.layers):
            before = None if hidden is None else (hidden[0][number, None], hidden[1][number, None])
            outputs, end = layer(outputs, before)
            outputs = self.dropout(outputs)
            ends.append(end)
        outputs_end, cells_end = (torch.cat(parts) for parts in zip(*ends, strict=True))
        return self.decoder(outputs), (outputs_end, cells_end)


def lstm(*, num_words: int, width: int = 650, layers: int = 3, dropout: float = 0.4) -> nn.Module:
    """An LSTM over words; 28,949,319 parameters for a vocabulary of 28,869.

    ``width`` is the size of the embedding and of the hidden state; they are equal because the output layer
    is tied. Raises ``ValueError`` for a width or depth below 1 and a dropout outside [0, 1).
    """
    require_count("model.width", width)
    require_count("model.layers", layers, maximum=1000)
    require_share("model.dropout", dropout)
    require_memory("model.width", width, 8 * width * (num_words + 8 * width * layers))
    return LSTMLanguageModel(num_words, width, layers, dropout)
