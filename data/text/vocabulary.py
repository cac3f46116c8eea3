"""Vocabulary: words and their ids."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

UNKNOWN, END = "<unk>", "<eos>"

Tokenize = Callable[[str], list[str]]


@dataclass(frozen=True)
class Vocabulary:
    """Words by id, with ``<unk>`` for every other word and ``<eos>`` for the end of a line."""

    words: tuple[str, ...]
    tokenize: Tokenize

    @classmethod
    def of(cls, lines: Iterable[str], tokenize: Tokenize, size: int | None = None) -> Self:
        """The words of ``lines`` by falling frequency; ties are in alphabetical order.

        ``size`` limits the number of words, ``<unk>`` and ``<eos>`` included.
        """
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(tokenize(line))
        for special in (UNKNOWN, END):
            counts.pop(special, None)
        by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
        return cls((UNKNOWN, END, *by_frequency)[:size], tokenize)

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def encode(self, lines: Iterable[str]) -> Tensor:
        """Ids [N] int64 of the words of all lines, with ``<eos>`` after each line."""
        find, unknown, end = self._numbers.get, self._numbers[UNKNOWN], self._numbers[END]
        numbers: list[int] = []
        for line in lines:
            numbers.extend(find(word, unknown) for word in self.tokenize(line))
            numbers.append(end)
        return torch.tensor(numbers, dtype=torch.int64)
