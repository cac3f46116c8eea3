"""Invalid command lines and config files: a one-line error before training, status not 0, no traceback."""

import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml
from bad_config_files import ONLY_PRIMARY, as_experiment, bad_files, named_files
from bad_configurations import bad_command_lines, with_small
from bad_settings import (
    COUNTS,
    COUNTS_OR_NULL,
    FLAGS,
    LARGE,
    LISTS,
    NOT_NEGATIVE,
    NOT_NEGATIVE_OR_NULL,
    NUMBERS_OR_NULL,
    OPTIONS,
    PARTS,
    POSITIVE,
    POSITIVE_OR_NULL,
    SECTIONS,
    SEEDS,
    SHARES,
    TEXTS,
    TEXTS_OR_NULL,
    WORDS,
)
from command_line import command
from configs import CONF
from hypothesis import HealthCheck, given, settings
from image_files import write_tree
from libsvm_files import write_rows

import run
import trainers.launch.processes

LONGEST_SECONDS = 60  # on a busy machine
MOST_BYTES = 4 * 2**30  # in addition to the memory of the process


class TrainedError(BaseException):
    """A base exception, which no except clause of run.py catches."""


def train(*_: Any) -> None:
    raise TrainedError(f"a bad configuration reached training: {sys.argv}")


def in_this_process(entry: str, argument: Any, processes: int) -> None:
    resolve_name(entry)(argument)


class TooSlowError(BaseException):
    """A base exception, which no except clause of run.py catches."""


@contextmanager
def bounded() -> Iterator[None]:
    """Context manager that limits the time and memory of a refusal."""

    def too_slow(*_: Any) -> None:
        raise TooSlowError(f"not refused within {LONGEST_SECONDS} s: {sys.argv}")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(LONGEST_SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_BYTES, limits[1]))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def refuse(words: Sequence[str], output: Path, capfd: pytest.CaptureFixture, *, says: str = "") -> str:
    """Run run.py in this process; assert a one-line error and no run folder; return the line.

    A third of the command lines keep the default tracker. ``says`` is the text of a config file, or "": if it
    sets the output or the tracker, these are kept.
    """

    def decides(key: str) -> bool:
        return f'"{key}' in says or any(word.lstrip("+~").startswith(key) for word in words)

    own = [] if decides("output") else [f"output={output}"]
    has_own = decides("tracker")
    tracker = [] if has_own or len("".join(words)) % 3 == 0 else ["tracker=none"]
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as patch, bounded():
        patch.setattr("trainers.run.training.run", train)
        patch.setattr(trainers.launch.processes, "launch", in_this_process)
        patch.setattr(sys, "argv", ["run.py", *own, *tracker, *words])
        status = run.command_line()
    said = capfd.readouterr().err
    assert status not in (0, None), words
    assert said.count("\n") == 1 and said.startswith("error: "), (words, said)
    assert "Traceback" not in said
    assert not list(output.glob("*/*")), words
    return said


def refuse_file(text: str, is_primary: bool, folder: Path, capfd: pytest.CaptureFixture) -> str:
    """``refuse`` for an untrusted primary config or experiment."""
    theirs, output = folder / "theirs", folder / "o"
    path = theirs / "nice.yaml" if is_primary else theirs / "experiment" / "nice.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if is_primary else as_experiment(text), encoding="utf-8")
    words = ["--config-name=nice"] if is_primary else ["experiment=nice"]
    try:
        return refuse([f"--config-dir={theirs}", *words], output, capfd, says=text)
    finally:
        path.unlink()


@pytest.mark.slow
def test_bad_configurations(
    tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 command lines and config files. Some datasets exist, so that their settings are read."""
    for split in ("train", "test"):
        write_tree(tmp_path / "data" / "x" / split, {"ant": 40, "bee": 40})
    write_rows(tmp_path / "data", "rows", rows=60, features=10)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    seen: list[Any] = []

    @settings(max_examples=500, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(bad_command_lines() | bad_files())
    def each(bad: list[str] | tuple[str, bool]) -> None:
        if isinstance(bad, list):
            refuse(bad, tmp_path / "o", capfd)
            seen.append(tuple(bad))
        else:
            refuse_file(*bad, tmp_path, capfd)
            seen.append(bad)

    each()
    assert len(set(seen)) >= 470


FAULTY = named_files()
QUICKLY_REFUSED = (  # one of each kind
    *("duplicate key", "tab", "NUL", "python tag", "500 nested lists", "a mapping in itself", "alias bomb"),
    *("key 1", "key true", "key 1.5", "long", "itself", "itself in other places", "a launcher", "/launcher"),
    *("logging", "hydra: searchpath", "hydra: null", "a number", "of mappings in a circle", "text bomb"),
)


@pytest.mark.parametrize("name", QUICKLY_REFUSED)
def test_bad_config_files(name: str, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    said = refuse_file(FAULTY[name], True, tmp_path, capfd)
    assert len(said) < 500, said


@pytest.mark.slow
@pytest.mark.parametrize("is_primary", [True, False], ids=["primary", "experiment"])
@pytest.mark.parametrize("name", FAULTY)
def test_all_bad_config_files(
    name: str, is_primary: bool, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    if is_primary or name not in ONLY_PRIMARY:
        refuse_file(FAULTY[name], is_primary, tmp_path, capfd)


LARGE_NUMBERS = {
    "optimizer.lr=1e39": "(numbers go up to 3.4e+38)",
    "optimizer.weight_decay=1e308": "optimizer.weight_decay must be a finite number >= 0, got 1e+308",
    f"trainer.steps={'9' * 320}": "trainer.steps must be an integer >= 1, got 999",
    f"data=python_docs model=lstm data.bptt={'9' * 30}": "data.bptt must be at most 2147483647, got 999",
    "data=python_docs model=bert data.objective=masked data.vocabulary=5": "data.vocabulary must be a non-",
    "data=image_folder data.name=x data.image_size=1000000000": "data.image_size must be at most 4096",
    "data=image_folder data.name=x data.mean=[nan,0,0]": "data.mean must be a list of 3 finite numbers",
    "data=image_folder data.name=x data.std=[inf,1,1]": "data.std must be a list of 3 numbers >= 1e-06",
    f"data=image_folder data.name=x data.mean=[{'9' * 400},0,0]": "data.mean must be a list of 3",
    "model.hidden=[99999999999]": "GiB of memory or more, and this machine has",
    "workers=1400 model=vgg19": "the gradients of all workers take",
    "schedule=cosine schedule.peak=1e38 optimizer.lr=1e3": "the schedule's factor must be at most 3.4e+38",
    "--resolve": "--resolve flag can only be used in conjunction with --cfg",
    "--shell-completion": "Expecting one subcommand",
    "hydra.searchpath=[ftp://x]": "No config source registered for schema ftp",
}


@pytest.mark.parametrize("words", LARGE_NUMBERS, ids=lambda words: words[:60])
def test_large_numbers_and_odd_options(
    words: str, tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in ("train", "test"):
        write_tree(tmp_path / "data" / "x" / split, {"ant": 10, "bee": 10})
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    assert LARGE_NUMBERS[words] in refuse(with_small(words.split(" ")), tmp_path / "o", capfd)


@pytest.mark.parametrize(
    "words",
    [
        ["model.hidden='a b'"],
        ["compressor._target_=os.system"],
        ["workers={a:1}"],
        ["compressor=nothing"],
        ["--multirum"],
        ["name=../x"],
        ["optimizer=null"],
        ["processes=2", "trainer.batch_size=100000"],
    ],
    ids=" ".join,
)
def test_bad_configurations_as_typed(words: list[str], tmp_path: Path) -> None:
    result = command(*with_small(words), "tracker=none", f"output={tmp_path}")
    assert result.returncode not in (0, None)
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    assert not list(tmp_path.glob("*/*"))


def test_every_setting_is_among_them() -> None:
    """A new key in conf/ must be added to helpers/bad_settings.py, except a method's."""
    tables = (WORDS, FLAGS, COUNTS, COUNTS_OR_NULL, POSITIVE, POSITIVE_OR_NULL, NOT_NEGATIVE)
    tables += (NUMBERS_OR_NULL, NOT_NEGATIVE_OR_NULL, SEEDS, SHARES, LISTS, TEXTS, TEXTS_OR_NULL, LARGE)
    tables += (PARTS, OPTIONS)
    covered = {key.split(" ")[-1] for table in tables for key in table}
    missing = set()
    for path in CONF.glob("*/*.yaml"):
        group = path.parent.name
        if group in SECTIONS:
            settings_of = yaml.safe_load(path.read_text()) or {}
            own = {key for key in settings_of if not key.startswith("_") and key != "defaults"}
            missing |= {f"{group}.{key}" for key in own} - covered
    assert missing == set()
