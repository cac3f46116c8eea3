"""MovieLens files of the three formats: reading, refusals, download."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.ratings import movielens as movielens_module
from data.ratings.movielens import EDITIONS, movielens, read

LINES = {
    "100k": ["196\t242\t3\t881250949", "186\t302\t3\t891717742", "22\t377\t1\t878887116"],
    "1m": ["1::1193::5::978300760", "1::661::3::978302109", "6040::1::4::956703932"],
    "20m": ["userId,movieId,rating,timestamp", "1,2,3.5,1112486027", "1,29,0.5,1112484676", "2,2,5.0,0"],
}
VALUES = {
    "100k": [(196, 242, 881250949), (186, 302, 891717742), (22, 377, 878887116)],
    "1m": [(1, 1193, 978300760), (1, 661, 978302109), (6040, 1, 956703932)],
    "20m": [(1, 2, 1112486027), (1, 29, 1112484676), (2, 2, 0)],
}


def write(root: Path, name: str, lines: list[str], ending: str = "\n") -> Path:
    path = root / EDITIONS[name].member
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + ending for line in lines).encode())
    return path


def whole(name: str) -> list[str]:
    """Lines of 6 users with 20 of 130 items each, user 7 with 19 items, and user 8 with all items."""
    header = [EDITIONS[name].header] if EDITIONS[name].header else []
    rng = np.random.default_rng(0)
    pairs = [(user, item) for user in range(1, 7) for item in rng.permutation(130)[:20] + 1]
    pairs += [(7, item + 1) for item in range(19)] + [(8, item) for item in range(1, 131)]
    rows = [map(str, (user, item, 4, time)) for time, (user, item) in enumerate(pairs)]
    return header + [EDITIONS[name].separator.join(row) for row in rows]


@pytest.mark.parametrize("name", EDITIONS)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_formats_by_hand(tmp_path: Path, name: str, ending: str) -> None:
    ratings = read(write(tmp_path, name, LINES[name], ending), EDITIONS[name])
    assert list(zip(*map(np.ndarray.tolist, ratings), strict=True)) == VALUES[name]


@pytest.mark.parametrize("name", EDITIONS)
def test_few_raters_are_dropped_and_the_last_is_held_out(tmp_path: Path, name: str) -> None:
    lines = [line for line in whole(name) if not line.startswith("8")]
    lines += whole_items(name)
    write(tmp_path, name, lines)
    data = movielens(name=name, root=str(tmp_path))
    facts = data.facts()
    assert (facts["name"], facts["users"], facts["ratings"]) == (f"movielens-{name}", 12, 12 * 20)
    assert len(data.train) == 12 * 19 * 5
    assert movielens(name=name, root=str(tmp_path), min_ratings=19).facts()["users"] == 13


def whole_items(name: str) -> list[str]:
    """Lines of 6 more users with 20 of 120 items each, so that every user has 100 unrated items."""
    pairs = [(20 + part, 20 * part + item + 1) for part in range(6) for item in range(20)]
    return [EDITIONS[name].separator.join(map(str, (user, item, 4, item))) for user, item in pairs]


BAD = {
    "100k": (
        *("1\t2\t3\t4\t5", "1\t2\t3", "1,2,3,4", "x\t2\t3\t4", "1\t2.5\t3\t4", "1\t-2\t3\t4", "1\t\t3\t4"),
        *("1\t2\tfive\t4", "1\t2\t881250949\t3", "1\t2\tnan\t3", "1\t2\t3\tnoon", '"1\t2\t3\t4'),
        *("99999999999999999999\t2\t3\t4", "\xe9\t2\t3\t4"),
    ),
    "1m": ("1::2::3", "1::2::3::4::5", "1:2:3:4", "1:7:2::3::4", "1::x::3::4"),
    "20m": ("1,2,3", "1,2,0.4,4", "userId,movieId,rating,timestamp"),
}


@pytest.mark.parametrize(("name", "line"), [(name, line) for name in BAD for line in BAD[name]])
def test_a_malformed_row_says_the_file_and_the_line(tmp_path: Path, name: str, line: str) -> None:
    good = LINES[name]
    at = 2 if EDITIONS[name].header else 1
    path = write(tmp_path, name, [*good[:at], line, *good[at:]])
    with pytest.raises(ValueError, match="must be") as refusal:
        movielens(name=name, root=str(tmp_path))
    fields = EDITIONS[name].separator.join(("user", "item", "rating", "timestamp"))
    rule = f"must be {fields}, whole numbers and a rating from 0.5 to 5"
    shown = line.encode().decode("ascii", "backslashreplace")
    assert str(refusal.value) == f"{path} line {at + 1}: {rule}, got {shown!r}"


@pytest.mark.parametrize("name", EDITIONS)
def test_rows_that_are_all_too_long(tmp_path: Path, name: str) -> None:
    header = [EDITIONS[name].header] if EDITIONS[name].header else []
    rows = [line + EDITIONS[name].separator + "1" for line in LINES[name][len(header) :]]
    write(tmp_path, name, header + rows)
    with pytest.raises(ValueError, match=rf"line {len(header) + 1}: must be user"):
        movielens(name=name, root=str(tmp_path))


def test_a_file_without_its_header(tmp_path: Path) -> None:
    path = write(tmp_path, "20m", LINES["20m"][1:])
    with pytest.raises(
        ValueError, match=rf"{path} line 1: must be userId,movieId,rating,timestamp, got '1,2"
    ):
        movielens(name="20m", root=str(tmp_path))


@pytest.mark.parametrize(("name", "lines"), [("100k", []), ("1m", [""]), ("20m", LINES["20m"][:1])])
def test_an_empty_file(tmp_path: Path, name: str, lines: list[str]) -> None:
    write(tmp_path, name, lines)
    with pytest.raises(ValueError, match=r"u\.data|ratings\.(dat|csv)"):
        movielens(name=name, root=str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "10m"}, r"data\.name must be one of 100k, 1m, 20m, got '10m'"),
        ({"name": 20}, r"data\.name must be one of 100k, 1m, 20m, got 20"),
        ({"download": "no"}, r"data\.download must be true or false, got 'no'"),
        ({"min_ratings": 0}, r"data\.min_ratings must be an integer >= 2, got 0"),
        ({"partition": "by_age"}, r"data\.partition must be one of"),
    ],
)
def test_bad_settings_before_any_reading(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        movielens(**({"name": "100k", "root": str(tmp_path)} | settings))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zip file in place of GroupLens's, with members whose paths lead outside the folder."""
    archive = tmp_path / "ml-100k.zip"
    lines = [line for line in whole("100k") if not line.startswith("8")] + whole_items("100k")
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("../outside.txt", "out")
        packed.writestr("/tmp/outside-too.txt", "out")
        packed.writestr("ml-100k/u.item", "not needed")
        packed.writestr("ml-100k/u.data", "".join(line + "\n" for line in lines))
    monkeypatch.setattr(movielens_module, "HOME", f"file://{tmp_path}")
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    monkeypatch.setitem(EDITIONS, "100k", replace(EDITIONS["100k"], md5=md5))
    return archive


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_download_takes_the_ratings_out_and_nothing_else(tmp_path: Path, home: Path, monkeypatch) -> None:
    root = tmp_path / "deep" / "root"
    data = movielens(name="100k", root=str(root), download=True)
    assert data.facts()["users"] == 12
    assert files(tmp_path / "deep") == ["root/ml-100k/u.data"]
    monkeypatch.setattr(movielens_module, "fetch", None)  # a second download would fail
    movielens(name="100k", root=str(root), download=True)


@pytest.mark.parametrize("content", [b"no zip", None])
def test_download_of_something_else_leaves_nothing(
    tmp_path: Path, home: Path, monkeypatch, content: bytes | None
) -> None:
    if content is None:
        with zipfile.ZipFile(home, "w") as packed:
            packed.writestr("other/u.data", "1\t2\t3\t4\n")
    else:
        home.write_bytes(content)
    md5 = hashlib.md5(home.read_bytes()).hexdigest()
    monkeypatch.setitem(EDITIONS, "100k", replace(EDITIONS["100k"], md5=md5))
    with pytest.raises(OSError, match=r"data\.download: .* is not the archive expected"):
        movielens(name="100k", root=str(tmp_path / "root"), download=True)
    assert files(tmp_path / "root") == []
