"""Tokens of a text: words, bytes, or byte pairs, with the number of bytes that each stands for."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from data.checks import require_count
from data.text.vocabulary import END, Tokenize, Vocabulary

KINDS = ("byte", "bpe", "word")
BYTES = 256


class Tokens(NamedTuple):
    """Token ids of lines; every line feed belongs to a token, so the bytes are those of the whole text."""

    ids: Tensor  # [N] int32
    num_bytes: Tensor  # [N] int32, of UTF-8


class Coding(NamedTuple):
    """A way to cut a text into tokens."""

    num_tokens: int  # V, ids are below it
    line_feed: int  # id of the token that ends a line
    encode: Callable[[Sequence[str]], Tokens]


def coding(kind: str, train: Sequence[str], vocabulary_size: int | None, tokenize: Tokenize) -> Coding:
    """The coding ``kind``; ``train`` is the training split's lines.

    ``byte`` has 256 ids. ``bpe`` has ``vocabulary_size`` (default 8,000) byte pairs, trained on ``train``.
    ``word`` has the ``vocabulary_size`` most frequent words of ``train``, or all if None; other words are
    ``<unk>``. Raises ``ValueError`` for another kind or an invalid size.
    """
    if kind not in KINDS:
        raise ValueError(f"data.tokens must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "byte":
        if vocabulary_size is not None:
            raise ValueError("data.vocabulary_size has no effect with data.tokens=byte: it has 256 ids")
        return Coding(BYTES, ord("\n"), _bytes)
    if kind == "word":
        if vocabulary_size is not None:
            require_count("data.vocabulary_size", vocabulary_size, minimum=3)
        words = Vocabulary.of(train, tokenize, vocabulary_size)
        return Coding(len(words), words.words.index(END), lambda lines: _words(words, lines))
    size = 8000 if vocabulary_size is None else vocabulary_size
    require_count("data.vocabulary_size", size, minimum=BYTES)
    return _byte_pairs(train, size)


def _bytes(lines: Sequence[str]) -> Tokens:
    text = bytearray("".join(f"{line}\n" for line in lines).encode())
    ids = torch.frombuffer(text, dtype=torch.uint8).int()
    return Tokens(ids, torch.ones_like(ids))


def _words(words: Vocabulary, lines: Sequence[str]) -> Tokens:
    """White space counts to the end of its line, for which ``<eos>`` stands."""
    sizes: list[int] = []
    for line in lines:
        own = [len(word.encode()) for word in words.tokenize(line)]
        sizes += [*own, len(line.encode()) + 1 - sum(own)]
    return Tokens(words.encode(lines).int(), torch.tensor(sizes, dtype=torch.int32))


def _byte_pairs(train: Sequence[str], size: int) -> Coding:
    """Byte pair encoding in the form of GPT-2 (Radford et al., 2019): merges of bytes within words.

    ``size`` includes the 256 bytes; a short text has fewer pairs to merge.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    tokenizer: Any = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(vocab_size=size, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator((f"{line}\n" for line in train), trainer)
    num_tokens = tokenizer.get_vocab_size()
    # ByteLevel writes every byte as one character.
    sizes = torch.tensor(
        [len(tokenizer.id_to_token(number)) for number in range(num_tokens)], dtype=torch.int32
    )

    def encode(lines: Sequence[str]) -> Tokens:
        found = tokenizer.encode_batch_fast([f"{line}\n" for line in lines])
        ids = torch.tensor([number for each in found for number in each.ids], dtype=torch.int32)
        return Tokens(ids, sizes[ids])

    (line_feed,) = tokenizer.encode("\n").ids
    return Coding(num_tokens, line_feed, encode)
