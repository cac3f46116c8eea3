"""LSTM language model (Hochreiter and Schmidhuber, 1997; as Zaremba et al., 2014, https://arxiv.org/abs/1409.2329).

With the output layer tied to the embedding (Press and Wolf, 2017, https://arxiv.org/abs/1608.05859).
"""

from torch import Tensor, nn

from data.checks import require_count


class LSTMLanguageModel(nn.Module):
    """Embedding, LSTM and a decoder whose weight is the embedding's; dropout before, between and after.

    The embedding starts uniform in [-0.1, 0.1] and the decoder's bias at 0; the LSTM's own weights as
    torch draws them, uniform in [-1, 1] / sqrt(width).
    """

    def __init__(self, vocabulary_size: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width)
        between = dropout if layers > 1 else 0.0  # torch warns where there is no between
        self.lstm = nn.LSTM(width, width, layers, dropout=between, batch_first=True)
        self.decoder = nn.Linear(width, vocabulary_size)
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.decoder.weight = self.embedding.weight

    def forward(
        self, tokens: Tensor, hidden: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits [B, T, V] of what follows each of ``tokens`` [B, T], and the state after the last.

        The state is two tensors [layers, B, width]; None is one of zeros.
        """
        outputs, hidden = self.lstm(self.dropout(self.embedding(tokens)), hidden)
        return self.decoder(self.dropout(outputs)), hidden


def lstm(*, vocabulary_size: int, width: int = 650, layers: int = 3, dropout: float = 0.4) -> nn.Module:
    """An LSTM over words; 28,949,319 parameters for a vocabulary of 28,869.

    ``width`` is that of the embedding and of the hidden state, one number because the output layer
    is tied. Raises ``ValueError`` for a width or depth below 1 and a dropout outside [0, 1).
    """
    require_count("model.width", width)
    require_count("model.layers", layers)
    is_number = isinstance(dropout, (int, float)) and not isinstance(dropout, bool)
    if not (is_number and 0 <= dropout < 1):
        raise ValueError(f"model.dropout must be in [0, 1), got {dropout!r}")
    return LSTMLanguageModel(vocabulary_size, width, layers, dropout)
