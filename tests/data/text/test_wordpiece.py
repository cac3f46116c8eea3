"""WordPiece, compared with hand-made results and transformers' tokenizer; invalid vocabularies."""

from pathlib import Path

import pytest
from glue_files import UNITS, WORDS, write_vocabulary

import data.torchvision_shim  # noqa: F401  has to come before the first import of transformers
from data.text.wordpiece import SPECIAL, WordPiece

NUMBER = {unit: number for number, unit in enumerate(UNITS)}


@pytest.fixture
def pieces(tmp_path: Path) -> WordPiece:
    return WordPiece.read(write_vocabulary(tmp_path), lowercase=True)


def numbers(text: str) -> list[int]:
    return [NUMBER[unit] for unit in text.split()]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("a fine film", "a fine film"),
        ("Playfully UNFINE.", "play ##ful ##ly [UNK] ."),
        ("un fíne", "un fine"),
        ("", ""),
        ("zebra [MASK] a", "[UNK] [MASK] a"),
        ("playx", "[UNK]"),
    ],
)
def test_longest_units_first(pieces: WordPiece, text: str, units: str) -> None:
    assert pieces.encode([text]) == [numbers(units)]


def test_letters_as_they_stand(tmp_path: Path) -> None:
    pieces = WordPiece.read(write_vocabulary(tmp_path), lowercase=False)
    assert pieces.encode(["a Fine fine"]) == [numbers("a [UNK] fine")]


def test_padding_and_cutting(pieces: WordPiece) -> None:
    tokens, lengths = pieces.encode_padded(["a fine film", "dull", "a a a a a"], max_length=5)
    assert tokens.tolist() == [
        numbers("[CLS] a fine film [SEP]"),
        numbers("[CLS] dull [SEP] [PAD] [PAD]"),
        numbers("[CLS] a a a [SEP]"),
    ]
    assert lengths.tolist() == [5, 3, 5]


def test_agrees_with_transformers(tmp_path: Path) -> None:
    """The texts have punctuation, accents, Chinese, control characters and long words."""
    from transformers import BertTokenizer

    path = write_vocabulary(tmp_path, [*UNITS, "中", "国", "$", "5", "##5", "'", "s", "-"])
    theirs = BertTokenizer(vocab=str(path), do_lower_case=True)
    texts = ["A  dull\tfilm's $55-play", "中国film", "fi\u0000ne\u200b film", "a" * 300, "İ Ünfíne", ". . ."]
    ours = WordPiece.read(path, lowercase=True).encode(texts)
    assert ours == [theirs.encode(text, add_special_tokens=False) for text in texts]
    assert len({tuple(row) for row in ours}) == len(texts)


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ([*UNITS, "a"], r"vocab\.txt, line 15: a unit must be new and not empty, got 'a'"),
        ([*UNITS, "", "b"], r"vocab\.txt, line 15: a unit must be new and not empty, got ''"),
        (WORDS, r"vocab\.txt: a WordPiece vocabulary must have .*; no \[PAD\]"),
        ([u for u in UNITS if u != "[MASK]"], r"no \[MASK\]"),
        ([], r"line 1: a unit must be new and not empty"),
        ([*UNITS, "Paris"], r"vocab\.txt: data\.lowercase must be false for a cased vocabulary, .* 'Paris'"),
    ],
)
def test_what_is_no_vocabulary(tmp_path: Path, units: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WordPiece.read(write_vocabulary(tmp_path, units), lowercase=True)


def test_missing_file_and_bad_flag(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no WordPiece vocabulary .*; set data\.vocabulary to another file"
    ):
        WordPiece.read(tmp_path / "none.txt", lowercase=True)
    with pytest.raises(ValueError, match=r"data\.lowercase must be true or false, got 'no'"):
        WordPiece.read(write_vocabulary(tmp_path), lowercase="no")


def test_vocabulary_of_a_text() -> None:
    """The units are characters at the start of and inside words, then words by frequency and alphabet."""
    lines = ["ab ba ab", "Ba abb ca"]
    pieces = WordPiece.of(lines, size=13, lowercase=True)
    assert list(pieces.units) == [*SPECIAL, "a", "b", "c", "##a", "##b", "##c", "ab", "ba"]
    assert [list(pieces.units)[n] for n in pieces.encode(["abb ba cd"])[0]] == ["ab", "##b", "ba", "[UNK]"]
    assert len(WordPiece.of(lines, size=100, lowercase=True)) == 15


def test_vocabulary_too_small_for_the_characters() -> None:
    with pytest.raises(ValueError, match=r"data\.vocabulary_size must be at least the 11 units .* got 10"):
        WordPiece.of(["abc"], size=10, lowercase=True)
