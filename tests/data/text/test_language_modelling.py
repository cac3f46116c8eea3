"""Vocabularies, and the settings of data=wikitext2, penn_treebank and python_docs."""

import sys
from pathlib import Path

import pytest

from data.text.corpora import Corpus
from data.text.language_modelling import python_docs, wikitext2
from data.text.vocabulary import Vocabulary


def write_wikitext(root: Path, train: str, held_out: str = "b c a\n a x\n") -> str:
    folder = root / "wikitext-2"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"wiki.{split}.tokens").write_text(train if split == "train" else held_out)
    return str(root)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return write_wikitext(tmp_path, " c b A a\n \n a b a <unk>\n")


def test_vocabulary_goes_by_frequency_then_alphabet() -> None:
    lines = ["d c b", "b c", "<unk> a <eos> c"]
    assert Vocabulary.of(lines, str.split).words == ("<unk>", "<eos>", "c", "b", "a", "d")
    assert Vocabulary.of(lines, str.split, size=4).words == ("<unk>", "<eos>", "c", "b")


def test_encoding_ends_each_line_and_knows_no_new_words() -> None:
    vocabulary = Vocabulary.of(["a a b"], str.split)
    assert vocabulary.encode(["b a", "", "new a <unk>"]).tolist() == [3, 2, 1, 1, 0, 2, 0, 1]


def test_files_in_numbers(root: str) -> None:
    found = wikitext2(root=root, evaluation_columns=2)
    # words 0 to 5: <unk> <eos> a b A c
    assert found.train.tolist() == [5, 3, 4, 2, 1, 1, 2, 3, 2, 0, 1]
    assert found.validation.tolist() == [3, 5, 2, 1, 2, 0, 1]
    assert found.model_arguments() == {"num_words": 6}
    facts = found.facts()
    assert (facts["name"], facts["train_tokens"], facts["validation_unknown"]) == ("wikitext2", 11, 0.1429)


def test_lowercase_and_size(root: str) -> None:
    assert wikitext2(root=root, evaluation_columns=2, lowercase=True).num_words == 5
    limited = wikitext2(root=root, evaluation_columns=2, lowercase=True, vocabulary_size=3)
    assert limited.train.tolist() == [0, 0, 2, 2, 1, 1, 2, 0, 2, 0, 1]


def test_evaluation_tokens(root: str) -> None:
    found = wikitext2(root=root, evaluation_columns=2, evaluation_tokens=4)
    assert (len(found.train), len(found.validation), len(found.test)) == (11, 4, 4)


def test_python_docs_need_no_files() -> None:
    found = python_docs()
    assert found.num_words == 2000
    assert len(found.train) > 50_000
    assert found.facts()["python"] == sys.version.split()[0]
    assert 0 < found.facts()["validation_unknown"] < 0.1
    everything = python_docs(vocabulary_size=10**6, lowercase=False)
    assert everything.num_words > found.num_words
    assert everything.facts()["train_unknown"] == 0
    in_windows = python_docs(objective="windows", tokens="word")
    assert in_windows.model_arguments() == found.model_arguments()
    assert in_windows.facts()["train_windows"] == len(found.train) // 128


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "both"}, "data.objective must be next_token, windows or masked, got 'both'"),
        ({"lowercase": "no"}, "data.lowercase must be true or false, got 'no'"),
        ({"vocabulary_size": 2}, "data.vocabulary_size must be an integer >= 3, got 2"),
        ({"evaluation_tokens": 1}, "data.evaluation_tokens must be an integer >= 2, got 1"),
        ({"bptt": 0}, "data.bptt must be an integer >= 1, got 0"),
        ({"evaluation_columns": True}, "data.evaluation_columns must be an integer >= 1, got True"),
        (
            {"evaluation_columns": 7},
            "data.evaluation_columns must be at most the 6 tokens to predict in the validation split, got 7",
        ),
        ({"mask_share": 0.1}, "data.mask_share has no effect with data.objective=next_token"),
        ({"tokenize": "x"}, "data.tokenize has no effect with data.objective=next_token"),
    ],
)
def test_settings_that_are_no_good(root: str, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wikitext2(root=root, **settings)


def test_masked_is_delegated_with_its_own_settings(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list = []

    def masked_dataset(corpus: Corpus, *, mask_share: float = 0.15, extra_facts: dict[str, str]) -> str:
        seen.append((corpus.name, mask_share, list(extra_facts)))
        return "masked"

    monkeypatch.setattr("data.text.language_modelling.masked_dataset", masked_dataset)
    assert wikitext2(root=root, objective="masked", bptt=None, mask_share=0.2) == "masked"
    assert python_docs(objective="masked", vocabulary_size=None) == "masked"
    assert seen == [("wikitext2", 0.2, []), ("python_docs", 0.15, ["python"])]
    for name in ("bptt", "vocabulary_size", "corpus"):
        with pytest.raises(ValueError, match=f"data.{name} has no effect with data.objective=masked"):
            wikitext2(root=root, objective="masked", **{name: 30} if name != "corpus" else {"corpus": 1})
