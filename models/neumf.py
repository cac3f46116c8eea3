"""NeuMF, neural matrix factorisation (He et al., 2017, https://arxiv.org/abs/1708.05031)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from data.checks import is_count, require_count, require_memory, require_share, shown


class NeuMF(nn.Module):
    """Score of a user and an item, from two separate pairs of embeddings.

    One pair is multiplied elementwise (matrix factorisation). The other is concatenated and fed to a
    multilayer perceptron with ReLU and dropout after each layer. A linear layer combines both outputs.
    Embeddings are initialised normally with standard deviation 0.01, as in the authors' code, hidden
    layers with Glorot's uniform distribution, the last layer with LeCun's, and biases with 0.
    """

    def __init__(
        self, num_users: int, num_items: int, factors: int, hidden: Sequence[int], dropout: float
    ) -> None:
        super().__init__()
        self.factor_users = nn.Embedding(num_users, factors)
        self.factor_items = nn.Embedding(num_items, factors)
        self.mlp_users = nn.Embedding(num_users, hidden[0] // 2)
        self.mlp_items = nn.Embedding(num_items, hidden[0] // 2)
        layers: list[nn.Module] = []
        for width_before, width in pairwise(hidden):
            layers += [nn.Linear(width_before, width), nn.ReLU(), nn.Dropout(dropout)]
        self.mlp = nn.Sequential(*layers)
        self.output = nn.Linear(factors + hidden[-1], 1)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.01)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        bound = (3 / self.output.in_features) ** 0.5  # LeCun: a variance of 1 / fan in
        nn.init.uniform_(self.output.weight, -bound, bound)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits [B] of users [B] and items [B], int32 or int64."""
        product = self.factor_users(users) * self.factor_items(items)  # [B, factors]
        hidden = self.mlp(torch.cat([self.mlp_users(users), self.mlp_items(items)], 1))
        return self.output(torch.cat([product, hidden], 1)).squeeze(1)


def neumf(
    *,
    num_users: int,
    num_items: int,
    factors: int = 64,
    hidden: Sequence[int] = (256, 256, 128, 64),
    dropout: float = 0.5,
) -> nn.Module:
    """NeuMF with ``factors`` for the product and layers of ``hidden`` widths for the perceptron.

    The first width is the sum of a user's and an item's embedding sizes. 31,832,577 parameters for
    MovieLens-20M's 138,493 users and 26,744 items. Raises ``ValueError`` for a width below 1, an odd
    first width and a dropout outside [0, 1).
    """
    require_count("model.factors", factors)
    is_list = isinstance(hidden, (list, tuple)) and len(hidden) > 0
    if not is_list or not all(map(is_count, hidden)) or hidden[0] % 2:
        rule = "a list of integers >= 1, the first one even"
        raise ValueError(f"model.hidden must be {rule}, got {shown(hidden)}")
    require_share("model.dropout", dropout)
    pairs = num_users + num_items
    require_memory("model.factors", factors, 8 * factors * pairs)
    weights = sum(before * after for before, after in pairwise(hidden))
    require_memory("model.hidden", hidden, 8 * (pairs * hidden[0] // 2 + weights))
    return NeuMF(num_users, num_items, factors, hidden, dropout)
