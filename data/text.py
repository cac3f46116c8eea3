"""Text to train on: a corpus, cut into words, for next-token prediction or masked modelling."""

import inspect
import platform
import re
from typing import Any

from data.checks import require_count, require_flag
from data.corpora import Corpus
from data.corpora import penn_treebank as penn_treebank_corpus
from data.corpora import python_docs as python_docs_corpus
from data.corpora import wikitext2 as wikitext2_corpus
from data.language import NextTokenDataset
from data.vocabulary import UNKNOWN, Tokenize, Vocabulary

_WORD = re.compile(r"\w+|[^\w\s]")  # runs of letters, digits and underscores; any other sign by itself


def wikitext2(*, root: str, download: bool = False, objective: str = "next_token", **settings: object) -> Any:
    """WikiText-2 (``corpora.wikitext2``), 33,278 words as the files have them.

    ``objective`` is next_token, with the settings of ``next_token_dataset``, or masked, with those of
    ``data.masked.masked_dataset``; None leaves a setting to them. Raises ``ValueError`` for another
    objective and for settings that have no effect with it.
    """
    return _dataset(wikitext2_corpus(root, download), objective, settings, tokenize=str.split)


def penn_treebank(
    *, root: str, download: bool = False, objective: str = "next_token", **settings: object
) -> Any:
    """The Penn Treebank (``corpora.penn_treebank``), 10,000 words; settings as of ``wikitext2``."""
    return _dataset(penn_treebank_corpus(root, download), objective, settings, tokenize=str.split)


def python_docs(*, objective: str = "next_token", **settings: object) -> Any:
    """The reference of this Python (``corpora.python_docs``), in words and signs of punctuation.

    Settings as of ``wikitext2``, but in lower case and of 2,000 words unless they say otherwise: where
    all words of the training split are known, ``<unk>`` is never trained, and held-out topics have many.
    """
    return _dataset(
        python_docs_corpus(),
        objective,
        settings,
        tokenize=_WORD.findall,
        about={"python": platform.python_version()},
        defaults={"lowercase": True, "vocabulary_size": 2000},
    )


def next_token_dataset(
    corpus: Corpus,
    *,
    tokenize: Tokenize,
    about: dict[str, Any],
    lowercase: bool = False,
    vocabulary_size: int | None = None,
    bptt: int = 30,
    evaluation_columns: int = 10,
    evaluation_tokens: int | None = None,
) -> NextTokenDataset:
    """``corpus`` in numbers, by a vocabulary of its training split.

    The vocabulary has the ``vocabulary_size`` most frequent words, or all of them; every other word is
    ``<unk>``, and each line ends with ``<eos>``. ``evaluation_tokens`` keeps only the first so many
    tokens of both held-out splits, for a quick look. Raises ``ValueError`` for settings that are no good.
    """
    require_flag("data.lowercase", lowercase)
    if vocabulary_size is not None:
        require_count("data.vocabulary_size", vocabulary_size, minimum=3)

    if evaluation_tokens is not None:
        require_count("data.evaluation_tokens", evaluation_tokens, minimum=2)

    def words_of(line: str) -> list[str]:
        return tokenize(line.lower() if lowercase else line)

    try:
        vocabulary = Vocabulary.of(corpus.train, words_of, vocabulary_size)
    except ValueError as error:
        raise ValueError(f"{corpus.source or corpus.name}: {error}") from error
    splits = {name: vocabulary.encode(getattr(corpus, name)) for name in ("train", "validation", "test")}
    for name in ("validation", "test"):
        splits[name] = splits[name][:evaluation_tokens]
    unknown = vocabulary.words.index(UNKNOWN)
    shares = {
        f"{name}_unknown": round((tokens == unknown).double().mean().item(), 4)
        for name, tokens in splits.items()
    }
    return NextTokenDataset(
        **splits,
        num_words=len(vocabulary),
        bptt=bptt,
        evaluation_columns=evaluation_columns,
        about={"name": corpus.name} | about | shares,
    )


def _dataset(
    corpus: Corpus,
    objective: str,
    settings: dict[str, Any],
    *,
    tokenize: Tokenize,
    about: dict[str, Any] | None = None,
    defaults: dict[str, Any] | None = None,
) -> Any:
    given = {name: value for name, value in settings.items() if value is not None}
    if objective == "next_token":
        _refuse_idle(given, next_token_dataset, objective)
        given = (defaults or {}) | given
        return next_token_dataset(corpus, tokenize=tokenize, about=about or {}, **given)
    if objective == "masked":
        from data.masked import masked_dataset

        _refuse_idle(given, masked_dataset, objective)
        return masked_dataset(corpus, **given)
    raise ValueError(f"data.objective must be next_token or masked, got {objective!r}")


def _refuse_idle(given: dict[str, Any], factory: Any, objective: str) -> None:
    known = inspect.signature(factory).parameters
    idle = sorted(given.keys() - known.keys() | given.keys() & {"corpus", "tokenize", "about"})
    if idle:
        raise ValueError(f"data.{idle[0]} has no effect with data.objective={objective}")
