"""All measurements on a GPU in less than nine minutes; writes a page and its numbers.

    make gpu
    python -m benchmarks.gpu [--parts tests,bandwidth] [--together tests,job] [--out results/pages/gpu]
    python -m benchmarks.gpu --device cpu --quick

Every part runs in its own process with a time limit. A part that fails is listed with its last lines, and the
others continue. The page is rewritten after every part. The parts of ``--together`` run first, at the same
time, and the page says so. It needs a GPU and a torch that can use it; a part whose packages are missing is
listed and skipped. ``--device cpu --quick`` runs the same code on a CPU, in small sizes, without measuring.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.goals import MISSED, judge
from benchmarks.gpu.page import page
from benchmarks.gpu.parts import PARTS, TOTAL_SECONDS
from trainers.files.working_tree import git

ROOT = Path(__file__).parents[2]
LAST_LINES = 15
RUNNING: set[subprocess.Popen] = set()  # parts that run now
OLDEST_TORCH = (2, 9)  # as in pyproject.toml
PACKAGES = {"hydra": "hydra-core", "yaml": "PyYAML", "sklearn": "scikit-learn"}  # names for pip


def main(words: Sequence[str] | None = None) -> int:
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--together", default="", help="parts to run first, at the same time, to save time")
    parser.add_argument(
        "--out", type=Path, help="folder of the page (default: results/pages/gpu; with --quick, outputs/gpu)"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="small sizes, to test the code, not its speed")
    parser.add_argument("--commit", help="commit of these files, if git does not know it")
    arguments = parser.parse_args(words)
    chosen = [name for name in arguments.parts.split(",") if name]
    unknown = [name for name in chosen if name not in PARTS]
    if unknown or not chosen:
        return _refuse(f"--parts must be some of {', '.join(PARTS)}, got {arguments.parts!r}")
    together = [name for name in arguments.together.split(",") if name]
    if not set(together) <= set(chosen):
        return _refuse(
            f"--together must be some of the parts {', '.join(chosen)}, got {arguments.together!r}"
        )
    if arguments.device == "cpu" and not arguments.quick:
        return _refuse("--device cpu measures nothing: it needs --quick")
    pages = ROOT / ("outputs/gpu" if arguments.quick else "results/pages/gpu")
    arguments.out = arguments.out or pages
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the running part is stopped too
    machine = _machine()
    missing = _missing(machine, arguments.device)
    for name, why in missing.items():
        print(f"missing: {name}: {why}")
    if not {"torch", "numpy", "GPU"}.isdisjoint(missing):
        return _refuse("nothing can be measured without these; make gpu GPU_PYTHON=PATH uses another Python")
    numbers = _begin(arguments, machine, chosen, words)
    groups = [[name for name in chosen if name in together]]
    groups += [[name] for name in chosen if name not in together]
    for position, group in enumerate(groups):
        seconds = [PARTS[name].seconds for name in group]
        later = sum(PARTS[name].seconds for names in groups[position + 1 :] for name in names)
        saved = sum(seconds) - max(seconds, default=0.0)
        limit = TOTAL_SECONDS - (time.monotonic() - started) - later - saved
        _measure(group, arguments, numbers, missing, limit)
    goals = judge([row for own in numbers["parts"].values() for row in own["rows"]], arguments.quick)
    for goal in goals:
        print(f"{goal.verdict}: {goal.what}: {goal.found or '-'} ({goal.bound})")
    print(f"page: {arguments.out / 'gpu.md'}, {time.monotonic() - started:.0f} s")
    unfinished = [name for name in chosen if numbers["parts"][name]["status"] != "done"]
    missed = sum(goal.verdict == MISSED for goal in goals)
    if unfinished or missed:
        print(f"{missed} goal(s) missed; not done: {', '.join(unfinished) or 'no part'}")
    return 1 if unfinished or missed else 0


def _measure(
    group: Sequence[str],
    arguments: argparse.Namespace,
    numbers: dict[str, Any],
    missing: Mapping[str, str],
    limit: float,
) -> None:
    """Run the parts of ``group`` at the same time, and write the page after each of them."""
    writing = threading.Lock()

    def measure(name: str) -> None:
        lacking = [need for need in PARTS[name].needs if need in missing]
        own: dict[str, Any] = {"commit": numbers["commit"], "date": numbers["date"]}
        if beside := [other for other in group if other != name]:
            own["beside"] = beside
        if lacking:
            own |= {"status": f"not run: {', '.join(lacking)} missing", "rows": []}
        else:
            print(f"{name}: {PARTS[name].title}, at most {limit:.0f} s", flush=True)
            own |= _run(name, arguments.device, arguments.quick, limit)
        with writing:
            print(f"{name}: {own['status']}", *own.get("last_lines", []), sep="\n  ", flush=True)
            numbers["parts"][name] = own
            _write(arguments.out, numbers)

    with ThreadPoolExecutor(max(1, len(group))) as threads:
        try:
            for done in [threads.submit(measure, name) for name in group]:
                done.result()
        except BaseException:  # an interruption reaches this thread alone
            for child in list(RUNNING):
                _end(child)
            raise


def _refuse(why: str) -> int:
    print(f"error: {why}", file=sys.stderr)
    return 1


def _environment() -> dict[str, str]:
    """Environment of a part: Python finds the project without an installation."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _machine() -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu.machine"]
    done = subprocess.run(
        command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        silent = f"it printed no message, exit status {done.returncode}"
        why = (done.stderr.strip() or silent).splitlines()[-1]
        raise SystemExit(f"error: {' '.join(command)} failed: {why}")
    return json.loads(done.stdout.splitlines()[-1])


def _missing(machine: Mapping[str, Any], device: str) -> dict[str, str]:
    """Missing requirements of the parts, with reasons."""
    found = {}
    needed = ["torch", "numpy", *dict.fromkeys(need for part in PARTS.values() for need in part.needs)]
    for name in needed:
        if importlib.util.find_spec(name) is None:
            found[name] = f"{sys.executable} has no package {PACKAGES.get(name, name)}"
    version = machine["versions"].get("torch", "")
    if version and tuple(map(int, version.split(".")[:2])) < OLDEST_TORCH:
        found["torch"] = f"{version} is older than {'.'.join(map(str, OLDEST_TORCH))}"
    if device == "cuda" and "torch" not in found and not machine["gpus"]:
        has_cuda = machine.get("torch_cuda")
        without = f"torch {version} is a build without CUDA, which could not use one"
        found["GPU"] = f"{'torch sees none' if has_cuda else without} ({sys.executable})"
    return found


def _begin(
    arguments: argparse.Namespace, machine: dict[str, Any], chosen: list[str], words: Sequence[str] | None
) -> dict[str, Any]:
    """The page's numbers before the measurement; other parts' numbers from the same machine are kept."""
    kept: dict[str, Any] = {}
    path = arguments.out / "numbers.json"
    if len(chosen) < len(PARTS) and path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        if (before["machine"], before["quick"]) == (machine, arguments.quick):
            kept = {name: own for name, own in before["parts"].items() if name not in chosen}
    typed = sys.argv[1:] if words is None else list(words)
    return {
        "command": " ".join(["python -m benchmarks.gpu", *typed]) if typed else "make gpu",
        "commit": arguments.commit or _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": arguments.device,
        "quick": arguments.quick,
        "machine": machine,
        "parts": kept,
    }


def _commit() -> str:
    """Commit of these files, and whether they are modified; result files are ignored."""
    commit = git(ROOT, "rev-parse", "HEAD")
    if commit is None:
        return "not known: there is no repository here"
    changed = git(ROOT, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results")
    return f"{commit} {'(changed)' if changed else '(clean)'}"


def _run(name: str, device: str, quick: bool, limit: float) -> dict[str, Any]:
    """Run a part in its own process."""
    command = [sys.executable, "-m", "benchmarks.gpu.part", name, f"--device={device}"]
    return supervise([*command, f"--seconds={limit - 5:.0f}", *(["--quick"] if quick else [])], limit)


def supervise(command: Sequence[str], limit: float) -> dict[str, Any]:
    """Run a command with --rows=FILE; returns status, seconds, rows and, after a fault, the last lines.

    After ``limit`` seconds the command and all processes that it started are stopped; its rows are kept.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        rows, log = Path(folder) / "rows", Path(folder) / "log"
        with log.open("w", encoding="utf-8") as out:
            child = subprocess.Popen(
                [*command, f"--rows={rows}"],
                cwd=ROOT,
                env=_environment(),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            RUNNING.add(child)
            try:
                status = child.wait(max(1.0, limit))
                said = "done" if status == 0 else f"failed with status {status}"
            except subprocess.TimeoutExpired:
                said = f"ended after its {limit:.0f} s"
            finally:
                RUNNING.discard(child)
                _end(child)
        found: dict[str, Any] = {"status": said, "seconds": round(time.monotonic() - started, 1)}
        lines = rows.read_text(encoding="utf-8").splitlines() if rows.exists() else []
        found["rows"] = [json.loads(line) for line in lines if line.endswith("}")]
        if said != "done":
            found["last_lines"] = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    return found


def _end(child: subprocess.Popen) -> None:
    """Stop the whole process group, because a part starts other processes."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _write(out: Path, numbers: Mapping[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (("numbers.json", json.dumps(numbers, indent=1) + "\n"), ("gpu.md", page(numbers))):
        unfinished = out / f".{name}"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(out / name)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
