"""WordPiece, the sub-word units of BERT (Devlin et al., 2019, https://arxiv.org/abs/1810.04805)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data.checks import require_flag

PADDING, UNKNOWN, START, END, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """Text to numbers, by a vocabulary file of one unit per line.

    ``lower_case`` folds letters and strips accents, which the uncased vocabularies expect. Raises
    ``FileNotFoundError`` for a file that is not there and ``ValueError`` for one that is no
    vocabulary: not UTF-8, a line that is empty or was there before, a special unit missing.
    """

    path: Path
    lower_case: bool = True
    units: dict[str, int] = field(init=False, repr=False)  # unit -> number
    _tokenizer: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_flag("data.lower_case", self.lower_case)
        object.__setattr__(self, "units", _read_units(self.path))
        object.__setattr__(self, "_tokenizer", _tokenizer(self.units, self.lower_case))

    def __len__(self) -> int:
        return len(self.units)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of every text, without special units around it."""
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def encode_padded(self, texts: Sequence[str], max_length: int) -> tuple[Tensor, Tensor]:
        """[N, T] int32, ``[CLS] text [SEP]`` cut to ``max_length`` and padded; lengths [N] int64.

        T is the longest length.
        """
        rows = [
            torch.tensor([self.units[START], *row[: max_length - 2], self.units[END]], dtype=torch.int32)
            for row in self.encode(texts)
        ]
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.units[PADDING])
        return tokens, torch.tensor([len(row) for row in rows])


def _read_units(path: Path) -> dict[str, int]:
    if not path.is_file():
        raise FileNotFoundError(
            f"no WordPiece vocabulary {path}; data.vocabulary=FILE names another, one unit per line"
        )
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    units: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        unit = line.removesuffix("\r")
        if not unit:
            raise ValueError(f"{path}, line {number}: a unit must not be empty")
        if unit in units:
            raise ValueError(f"{path}, line {number}: {unit!r} is on line {units[unit] + 1} already")
        units[unit] = len(units)
    missing = [unit for unit in SPECIAL if unit not in units]
    if missing:
        raise ValueError(f"{path} is no WordPiece vocabulary: {', '.join(missing)} missing")
    return units


def _tokenizer(units: dict[str, int], lower_case: bool) -> Any:
    """transformers' BertTokenizerFast without importing transformers, which takes seconds."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece as Model
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    tokenizer = Tokenizer(Model(units, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=lower_case)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer
