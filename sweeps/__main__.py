"""Command that runs all sweeps of a study in order: ``python -m sweeps STUDY [--keep-going] [OVERRIDE ...]``.

STUDY is a folder of sweeps/, a pattern for some of its files such as 'methods/rates_*', or a single file of
sweeps/ without its ending. Each file is run by the command in its second line, two jobs at a time and without
a tracker unless an OVERRIDE says otherwise. Finished runs are not run again. The command stops at the first
sweep with a failed job; with --keep-going it also runs the others.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from trainers.launch.commands import Commands

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "sweeps"
WANDB = "wandb"  # folder of sweeps for the agents of Weights & Biases
DEFAULT_OVERRIDES = ("tracker=none", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
KEEP_GOING = "--keep-going"
_VARIABLE = re.compile(r"([A-Z_0-9]+)=(\S+)")


def studies() -> list[str]:
    """The names of all studies: folders with sweeps, and single sweeps."""
    folders = {path.parent.name for path in FOLDER.glob("*/*.yaml")} - {WANDB}
    return sorted(folders | {path.stem for path in FOLDER.glob("*.yaml")})


def files_of(study: str) -> list[Path]:
    """The sweep files of ``study``, in the order of their names, in which they run; may be empty."""
    folder, slash, pattern = study.partition("/")
    if slash:
        return sorted((FOLDER / folder).glob(f"{pattern}.yaml")) if folder in studies() else []
    return [path for path in (FOLDER / f"{study}.yaml",) if path.is_file()] or sorted(
        (FOLDER / study).glob("*.yaml")
    )


def command_of(file: Path, overrides: Sequence[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Environment variables and words of the command in a file's second line.

    The words end with the defaults ``DEFAULT_OVERRIDES`` that no override replaces, and with ``overrides``.
    """
    words = shlex.split(file.read_text(encoding="utf-8").splitlines()[1].removeprefix("# "))
    variables = {}
    while found := _VARIABLE.fullmatch(words[0]):
        variables[found[1]] = found[2]
        words.pop(0)
    typed = {word.split("=")[0] for word in overrides}
    launcher = "hydra/launcher" in typed
    defaults = [
        word
        for word in DEFAULT_OVERRIDES
        if word.split("=")[0] not in typed and not (launcher and word.startswith("hydra"))
    ]
    return variables, [*words, *defaults, *overrides]


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if {"-h", "--help"} & set(words):
        print(f"{__doc__}\nStudies: {', '.join(studies())}")
        return 0
    keep_going = KEEP_GOING in words
    study, *overrides = [word for word in words if word != KEEP_GOING] or [""]
    if study not in studies() and not ("/" in study and files_of(study)):
        problem = f"no study {study!r}" if study else "a study is missing"
        print(f"error: {problem}; there are {', '.join(studies())}", file=sys.stderr)
        return 2
    failed = 0
    with Commands() as commands:
        for file in files_of(study):
            variables, command = command_of(file, overrides)
            shown = [f"{name}={value}" for name, value in variables.items()] + command
            print(f"== {shlex.join(shown)}", flush=True)
            try:
                done = commands.run([sys.executable, *command[1:]], os.environ | variables, cwd=ROOT)
            except KeyboardInterrupt:
                return commands.status
            failed = failed or done.returncode
            if failed and not keep_going:
                break
    is_ours = not any(word.startswith("output=") for word in overrides)
    if is_ours and not failed and (ROOT / f"results/pages/{study}/study.yaml").is_file():
        print(f"next: python -m results study {study} (its page of all these runs)")
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
