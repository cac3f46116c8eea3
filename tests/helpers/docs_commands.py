"""Checks of the docs' commands without running their training or measurement."""

import re
import shlex
from pathlib import Path

from configs import resolved
from docs_pages import ROOT
from hydra.core.override_parser.overrides_parser import OverridesParser

from results.__main__ import COMMANDS
from results.studies.catalogue import STUDIES
from sweeps.__main__ import KEEP_GOING, command_of, files_of, studies
from trainers.config.checks import check

SHORTENED = ("...", "STUDY", "NAME", "OUTPUT", "FILE")  # placeholders in commands
INSTALLATION = re.compile(
    r"python3\.11 -m venv \.venv"
    r"|(\.venv/bin/python -m |\.venv/bin/)?pip install .+"
    r"|\. \.venv/bin/activate"
    r"|export( [A-Z_]+=\w+)+"
)


def require_command(command: str) -> None:
    """Raise unless everything that ``command`` names exists."""
    if INSTALLATION.fullmatch(command):
        return
    words = shlex.split(command)
    while words and (words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
        words.pop(0)
    program, *rest = words
    if program == "make":
        require_target(rest)
    elif program == "wandb":
        require_wandb(rest)
    elif Path(program).name in ("python", "torchrun"):
        require_python(rest)
    else:
        raise AssertionError(f"no rule for {command!r}")


def require_target(words: list[str]) -> None:
    target, *variables = words
    if target in SHORTENED:
        return
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^(?!#)(\S+ )*{re.escape(target)}( \S+)*:", makefile, re.MULTILINE), (
        f"no target {target}"
    )
    for variable in variables:
        name, _, value = variable.partition("=")
        assert f"$({name})" in makefile or name in ("ARGS", "GPU_PYTHON"), variable
        if name == "ARGS" and target == "run":
            require_overrides(value.split())


def require_wandb(words: list[str]) -> None:
    assert words[0] in ("sweep", "agent", "sync", "leet"), words
    if words[0] == "sweep":
        assert (ROOT / words[1]).is_file(), f"no file {words[1]}"


def require_python(words: list[str]) -> None:
    if "run.py" in words:
        return require_overrides(words[words.index("run.py") + 1 :])
    if words[:2] == ["-m", "pytest"]:
        assert (ROOT / words[2]).exists(), f"no file {words[2]}"
        return None
    if words[:2] == ["-m", "results"]:
        return require_results(words[2:])
    if words[:2] == ["-m", "sweeps"]:
        return require_study(words[2:])
    if words[0].startswith("--nproc-per-node="):  # torchrun's option
        words = words[1:]
    path = words[1].replace(".", "/") + ".py" if words[0] == "-m" else words[0]
    assert (ROOT / path).is_file(), f"no file {path}"
    require_options(words, (ROOT / path).parent)
    return None


def require_study(words: list[str]) -> None:
    study, *rest = words
    is_some = "/" in study and files_of(study)
    assert is_some or study in (*studies(), *SHORTENED), f"no study {study}"
    overrides = [word for word in rest if word not in (KEEP_GOING, "[OVERRIDE")]
    for file in files_of(study)[: None if overrides else 1]:  # the tests of studies check all files
        require_overrides(command_of(file, overrides)[1][2:])


def require_options(words: list[str], folder: Path) -> None:
    known = "".join(file.read_text() for file in folder.rglob("*.py"))
    for option in (word.split("=")[0] for word in words if word.startswith("--")):
        assert f'"{option}"' in known, f"no option {option}"


def require_results(words: list[str]) -> None:
    if not words:
        return
    command, *rest = words
    assert command in COMMANDS, f"no command {command}"
    require_options(
        rest, (ROOT / "results" / COMMANDS[command][0].removeprefix(".").replace(".", "/")).parent
    )
    if command == "study" and rest and rest[0] not in SHORTENED:
        assert rest[0] in STUDIES, f"no study {rest[0]}"
    if command == "budget":
        typed = [word for word, before in zip(rest, ["", *rest], strict=False) if not before.startswith("--")]
        require_overrides([word for word in typed if "=" in word and not word.startswith("-")])


def require_overrides(words: list[str]) -> None:
    """Compose and check the config; for a sweep, the config of its first job."""
    words = [word for word in words if word not in ("-m", "--help") and word not in SHORTENED]
    typed = [word for word in words if not any(part in SHORTENED for part in re.split("[=/]", word))]
    overrides = [first_of(word) for word in typed if own_config(word)]
    check(resolved(*overrides))


def first_of(word: str) -> str:
    every = re.fullmatch(r"(\w+)=glob\((.+)\)", word)
    if every:
        return f"{every[1]}={min(path.stem for path in (ROOT / 'conf' / every[1]).glob(f'{every[2]}.yaml'))}"
    override = OverridesParser.create().parse_override(word)
    if not override.is_sweep_override():
        return word
    return f"{override.input_line.split('=')[0]}={next(iter(override.sweep_string_iterator()))}"


def own_config(word: str) -> bool:
    """Whether the word names a config of the project, not a reader's config or one that a command writes."""
    return not re.match(r"compressor=(my_method|stride)|compressor\.every=|budget=matched", word)
