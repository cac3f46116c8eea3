"""Factories of text datasets: a corpus for the prediction of next tokens or of masked ones."""

import inspect
import platform
import re
from collections.abc import Callable, Sequence
from typing import Any

from data.text.corpora import Corpus
from data.text.corpora import penn_treebank as penn_treebank_corpus
from data.text.corpora import python_docs as python_docs_corpus
from data.text.corpora import text as text_corpus
from data.text.corpora import wikitext2 as wikitext2_corpus
from data.text.masked import MaskedDataset, masked_dataset
from data.text.next_token import NextTokenDataset, next_token_dataset
from data.text.vocabulary import Tokenize
from data.text.windows import WindowDataset, window_dataset

LanguageDataset = NextTokenDataset | WindowDataset | MaskedDataset  # by data.objective
_WORD = re.compile(r"\w+|[^\w\s]")  # a run of letters, digits and underscores, or one other character


def wikitext2(
    *, root: str, download: bool = False, objective: str = "next_token", **settings: Any
) -> LanguageDataset:
    """WikiText-2 (``corpora.wikitext2``) with its 33,278 words.

    ``objective`` is next_token, windows or masked, with the settings of ``next_token_dataset``,
    ``window_dataset`` or ``masked_dataset``. A setting of None takes the default there. Raises
    ``ValueError`` for another objective and for settings that have no effect with the objective.
    """
    return _dataset(wikitext2_corpus(root, download), objective, settings, tokenize=str.split)


def penn_treebank(
    *, root: str, download: bool = False, objective: str = "next_token", **settings: Any
) -> LanguageDataset:
    """The Penn Treebank (``corpora.penn_treebank``), 10,000 words; settings as in ``wikitext2``."""
    return _dataset(penn_treebank_corpus(root, download), objective, settings, tokenize=str.split)


def python_docs(*, objective: str = "next_token", **settings: Any) -> LanguageDataset:
    """Python's language reference (``corpora.python_docs``), in words and punctuation marks.

    Settings as in ``wikitext2``, but the defaults of next_token, and of windows of words, are lower case and
    a vocabulary of 2,000 words. If the vocabulary had every training word, ``<unk>`` would not be trained,
    but held-out topics have many unknown words.
    """
    return _dataset(
        python_docs_corpus(),
        objective,
        settings,
        tokenize=_WORD.findall,
        extra_facts={"python": platform.python_version()},
        defaults={"lowercase": True, "vocabulary_size": 2000},
    )


def text(
    *,
    files: Sequence[str],
    root: str,
    held_out: float = 0.1,
    objective: str = "windows",
    **settings: Any,
) -> WindowDataset | NextTokenDataset | MaskedDataset:
    """Text files (``corpora.text``); settings as in ``wikitext2``, words are those of ``python_docs``."""
    return _dataset(text_corpus(root, files, held_out), objective, settings, tokenize=_WORD.findall)


def _dataset(
    corpus: Corpus,
    objective: str,
    settings: dict[str, Any],
    *,
    tokenize: Tokenize,
    extra_facts: dict[str, Any] | None = None,
    defaults: dict[str, Any] | None = None,
) -> LanguageDataset:
    factories: dict[str, Callable[..., LanguageDataset]] = {
        "next_token": next_token_dataset,
        "windows": window_dataset,
        "masked": masked_dataset,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    if not isinstance(objective, str) or objective not in factories:
        raise ValueError(f"data.objective must be next_token, windows or masked, got {objective!r}")
    factory = factories[objective]
    known = inspect.signature(factory).parameters.keys() - {"corpus", "tokenize", "extra_facts"}
    if unused := sorted(given.keys() - known):
        raise ValueError(f"data.{unused[0]} has no effect with data.objective={objective}")
    if objective == "masked":
        return factory(corpus, extra_facts=extra_facts or {}, **given)
    if objective == "next_token" or given.get("tokens") == "word":
        given = (defaults or {}) | given
    return factory(corpus, tokenize=tokenize, extra_facts=extra_facts or {}, **given)
