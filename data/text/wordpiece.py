"""WordPiece, the sub-word units of BERT (Devlin et al., 2019, https://arxiv.org/abs/1810.04805)."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from data.checks import require_flag
from data.files import read_lines

PADDING, UNKNOWN, START, END, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_INSIDE = "##"  # prefix of a unit inside a word


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """Tokenizer that splits each word into the longest units of the vocabulary.

    ``lowercase`` converts to lower case and strips accents, as uncased vocabularies require. Raises
    ``ValueError`` for a vocabulary without one of the special units.
    """

    units: dict[str, int] = field(repr=False)  # unit -> id
    lowercase: bool = True
    _tokenizer: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_flag("data.lowercase", self.lowercase)
        missing = [unit for unit in SPECIAL if unit not in self.units]
        if missing:
            raise ValueError(f"a WordPiece vocabulary must have {', '.join(SPECIAL)}; no {missing[0]}")
        object.__setattr__(self, "_tokenizer", _tokenizer(self.units, self.lowercase))

    @classmethod
    def read(cls, path: Path, lowercase: bool) -> Self:
        """A vocabulary from its file, one unit per line.

        Raises ``FileNotFoundError`` for a missing file, ``ValueError`` with the line number for an empty
        or repeated unit, and ``ValueError`` for a file that is not UTF-8 and for a cased vocabulary with
        ``lowercase``.
        """
        if not path.is_file():
            raise FileNotFoundError(f"no WordPiece vocabulary {path}; set data.vocabulary to another file")
        units: dict[str, int] = {}
        for number, line in enumerate(read_lines(path), start=1):
            unit = line.removesuffix("\r")
            if not unit or unit in units:
                raise ValueError(
                    f"{path}, line {number}: a unit must be new and not empty, got {unit[:80]!r}"
                )
            units[unit] = len(units)
        cased = next((unit for unit in units if unit not in SPECIAL and re.search("[A-Z]", unit)), None)
        if lowercase and cased is not None:
            raise ValueError(
                f"{path}: data.lowercase must be false for a cased vocabulary, which has {cased!r}"
            )
        try:
            return cls(units=units, lowercase=lowercase)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def of(cls, lines: Sequence[str], size: int, lowercase: bool) -> Self:
        """A vocabulary of at most ``size`` units for these lines.

        It has every character, at the start of and inside a word, and then the most frequent words. This is
        simpler than the merges of the published vocabularies, and the same on every machine.
        """
        bare = cls(units={unit: number for number, unit in enumerate(SPECIAL)}, lowercase=lowercase)
        counts = Counter(word for line in lines for word in bare.words(line))
        characters = sorted({character for word in counts for character in word})
        units = [*SPECIAL, *characters, *(_INSIDE + character for character in characters)]
        if len(units) > size:
            raise ValueError(
                f"data.vocabulary_size must be at least the {len(units)} units for this text's characters, "
                f"got {size}"
            )
        frequent = sorted(counts, key=lambda word: (-counts[word], word))
        units += [word for word in frequent if len(word) > 1][: size - len(units)]
        return cls(units={unit: number for number, unit in enumerate(units)}, lowercase=lowercase)

    def __len__(self) -> int:
        return len(self.units)

    def words(self, line: str) -> list[str]:
        """The words and punctuation marks of a line, before they are split into units."""
        normal = self._tokenizer.normalizer.normalize_str(line)
        return [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(normal)]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of every text, without special units."""
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


def _tokenizer(units: dict[str, int], lowercase: bool) -> Any:
    """The tokenizer of transformers' BertTokenizer. Importing transformers would take seconds."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece as Model
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    model = Model(units, unk_token=UNKNOWN, max_input_chars_per_word=100, continuing_subword_prefix=_INSIDE)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer
