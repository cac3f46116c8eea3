"""Command that runs all sweeps of a study in order: ``python -m sweeps STUDY [--keep-going] [OVERRIDE ...]``.

STUDY is a folder of sweeps/, a pattern for some of its files such as 'methods/rates_*', or a single file of
sweeps/ without its ending. Each file is run by the command in its second line, two jobs at a time and without
a tracker unless an OVERRIDE says otherwise. Finished runs are not run again. The command stops at the first
sweep with a failed job; with --keep-going it also runs the others.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

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
    for file in files_of(study):
        variables, command = command_of(file, overrides)
        print(
            f"== {shlex.join([f'{name}={value}' for name, value in variables.items()] + command)}", flush=True
        )
        status = run([sys.executable, *command[1:]], os.environ | variables)
        if status < 0 or status >= 128:  # stopped by a signal, as by Ctrl-C
            return 128 - status if status < 0 else status
        failed = failed or status
        if failed and not keep_going:
            break
    return failed


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a sweep and return its exit status.

    SIGINT and SIGTERM are passed on to the sweep, which saves its jobs. The status is then that of the
    signal, also if the sweep ends with another one.
    """
    received: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for process in started:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        started.append(process)
        for number in received:  # before ``pass_on`` knew the process
            process.send_signal(number)
        status = process.wait()
        return 128 + received[0] if received else status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
