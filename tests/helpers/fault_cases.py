"""Random faults of a run; the case number determines the fault, its time and the affected process."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from command_line import ROOT, TIMEOUT_SECONDS, WarmPython
from interrupting import DYING, fill, is_alive, last_step, run_folder, session, small_disk

STEPS = 40
RUN = ["model=mlp", "model.hidden=[16]", "workers=2", "trainer.batch_size=8", "optimizer=adam"]
RUN += ["compressor=top_k", f"trainer.steps={STEPS}", "checkpoint.every_steps=10", "kernels=reference"]
# Modules that the server imports, so that the cases need not
IMPORTS = (
    *("wandb", "run", "trainers.run.training", "hydra.core.override_parser.overrides_parser"),
    *("sklearn.datasets", "trainers.loop", "trainers.run.trackers", "trainers.run.folder"),
    *("trainers.checkpoint.resume", "trainers.checkpoint.saving", "trainers.config.targets"),
    *("trainers.launch.process_group", "compressors.build", "models.mlp", "rich.progress"),
)
NETWORK = {  # shell commands in separate network and host-name namespaces
    "unknown host name": "hostname nowhere.invalid; ip link set lo up",
    "no free port": 'ip link set lo up; echo "40000 40000" > /proc/sys/net/ipv4/ip_local_port_range',
    "no loopback": "true",
}
# Points at which dying_run.py kills a run, and the maximum count at each
DEATHS = {"tensors": 4, "description": 4, "old checkpoint": 2, "record": 40, "summary": 3, "checkpoints": 1}


@dataclass
class Case:
    """A run and one fault."""

    number: int
    kind: str
    what: str
    processes: int
    tracker: bool  # Weights & Biases, the default
    cold: bool  # a new interpreter, without preloaded modules
    seconds: float | None  # seconds from the start to the fault, or None
    records: int  # number of records before the fault, if ``seconds`` is None
    victim: int  # the rank with the fault

    @property
    def overrides(self) -> list[str]:
        words = [*RUN, f"processes={self.processes}"]
        words += [] if self.tracker else ["tracker=none"]
        return [*words, "timeout_seconds=10"] if self.kind == "halt" else words

    def __str__(self) -> str:
        moment = f"{self.seconds:.2f} s" if self.seconds is not None else f"{self.records} records"
        words = (f"P={self.processes}", "W&B" if self.tracker else "none", "cold" if self.cold else "warm")
        return f"{self.number}: {self.kind}, {self.what}, after {moment}, {', '.join(words)}"


KINDS = {  # frequencies in per cent
    "signal": (34, ("SIGINT everybody", "SIGINT", "SIGTERM", "SIGTERM everybody", "SIGKILL")),
    "signal to a rank": (6, ("SIGINT", "SIGTERM", "SIGKILL")),
    "halt": (2, ("SIGSTOP",)),
    "death": (14, tuple(DEATHS)),
    "full disk": (12, ("after",)),
    "removed": (12, ("output", "run folder", "metrics.jsonl", "moved", "wandb")),
    "stream": (12, ("stdout leaves", "stdout closed", "stdout full", "stderr closed", "both closed")),
    "W&B dies": (5, ("SIGKILL", "SIGTERM")),
    "network": (3, tuple(NETWORK)),
}


def case_of(number: int) -> Case:
    choose = random.Random(number)
    kind = choose.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
    together = kind in ("signal to a rank", "halt", "network") or choose.random() < (
        0.15 if kind == "signal" else 0.05
    )
    together = together and kind != "death"  # dying_run.py affects only the started process
    cold = kind == "network" or choose.random() < 0.06
    soonest = 1.5 if cold else 0.0  # while Python starts, it prints its own messages
    return Case(
        number=number,
        kind=kind,
        what=choose.choice(KINDS[kind][1]),
        processes=2 if together else 1,
        tracker=kind == "W&B dies" or choose.random() < 0.7,
        cold=cold,
        seconds=choose.uniform(soonest, 3) if kind.startswith("signal") and choose.random() < 0.5 else None,
        records=choose.randint(1, STEPS - 1),
        victim=choose.randrange(2),
    )


@dataclass
class Outcome:
    """The result of a case: exit status, stdout, stderr, folders, and processes that are still alive."""

    case: Case
    struck: bool  # whether what the fault concerns still existed
    status: int
    out: str
    err: str
    output: Path
    temporary: Path
    left_alive: list[int]


class Bench:
    """Runs cases in sequence in ``folder``, with one server of warm_python.py."""

    def __init__(self, folder: Path, seconds: float = TIMEOUT_SECONDS) -> None:
        self.folder = folder
        self.warm = WarmPython(*IMPORTS)
        self.seconds = seconds

    @contextmanager
    def happen(self, case: Case) -> Iterator[Outcome]:
        """Context manager that runs the case; inside the block, a disk that was full has free space."""
        folder = self.folder / str(case.number)
        folder.mkdir()
        if case.kind != "full disk":
            yield self._run(case, folder, folder / "out", lambda: None)
        else:
            with small_disk(folder / "disk", "size=8m") as disk:
                if disk is None:
                    raise PermissionError("no right to mount a small filesystem")
                yield self._run(case, folder, disk / "out", lambda: fill(disk))
        shutil.rmtree(folder)

    def again(self, outcome: Outcome) -> Outcome:
        """Run the command again in one process, without a fault and without Weights & Biases."""
        case = Case(outcome.case.number, "none", "again", 1, False, False, None, 0, 0)
        folder = self.folder / str(case.number)
        return self._run(case, folder, outcome.output, lambda: None)

    def close(self) -> None:
        self.warm.kill()

    def _run(self, case: Case, folder: Path, output: Path, fault: Callable[[], None]) -> Outcome:
        out, err = folder / f"{case.kind}.out", folder / f"{case.kind}.err"
        out.touch()
        err.touch()
        (folder / "temporary").mkdir(exist_ok=True)
        words = ["run.py", *case.overrides, f"output={output}"]
        if case.kind == "death":
            count = random.Random(case.number).randint(1, DEATHS[case.what])
            words = [DYING, case.what, str(count), *words[1:]]
        hidden = ("WANDB_MODE", "DATA_DIR", "WANDB_API_KEY")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {"TMPDIR": str(folder / "temporary"), "DYING_RANK": str(case.victim % case.processes)}
        streams = self._streams(case, out, err)
        reader = os.open(streams["stdout"], os.O_RDONLY | os.O_NONBLOCK) if "leaves" in case.what else None
        if case.cold:
            process = self._start_cold(case, words, environment, streams)
            leader = process.pid
        else:
            leader = self.warm.start(words, environment, session=True, **streams)
        try:
            self._wait_for_moment(case, leader, output)
            fault()
            struck = self._strike(case, leader, output)
            if reader is not None:
                os.close(reader)
                reader = None
            end = time.monotonic() + self.seconds
            while is_alive(leader) and time.monotonic() < end:
                time.sleep(0.02)
            end = min(end, time.monotonic() + 120)
            while session(leader) and time.monotonic() < end:
                time.sleep(0.1)
            left = session(leader)
        finally:
            for pid in session(leader):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            status = process.wait() if case.cold else self.warm.wait(leader)
            if reader is not None:
                os.close(reader)
        (folder / "disk" / "filler").unlink(missing_ok=True)
        said = (path.read_text() for path in (out, err))
        return Outcome(case, struck, status, *said, output, folder / "temporary", left)

    @staticmethod
    def _streams(case: Case, out: Path, err: Path) -> dict[str, str | None]:
        streams: dict[str, str | None] = {"stdout": str(out), "stderr": str(err)}
        if case.kind == "stream":
            if "leaves" in case.what:
                streams["stdout"] = str(out.with_suffix(".pipe"))
                os.mkfifo(streams["stdout"])
            if case.what == "stdout full":
                streams["stdout"] = "/dev/full"
            if case.what in ("stdout closed", "both closed"):
                streams["stdout"] = None
            if case.what in ("stderr closed", "both closed"):
                streams["stderr"] = None
        return streams

    @staticmethod
    def _start_cold(
        case: Case, words: list[str], environment: dict[str, str], streams: dict[str, str | None]
    ) -> subprocess.Popen:
        closing = "".join(
            f" {mark}&-" if streams[name] is None else f' {mark}"${name}"'
            for name, mark in (("stdout", ">"), ("stderr", "2>"))
        )
        paths = {name: path for name, path in streams.items() if path is not None}
        script = f'exec "$@" {closing}'
        apart = []
        if case.kind == "network":
            script, apart = f"{NETWORK[case.what]}; {script}", ["unshare", "--net", "--uts"]
        line = [*apart, "sh", "-c", script, "sh", sys.executable, *words]
        return subprocess.Popen(line, cwd=ROOT, env=environment | paths, start_new_session=True)

    def _wait_for_moment(self, case: Case, leader: int, output: Path) -> None:
        if case.kind in ("none", "death", "network"):
            return
        if case.seconds is not None:
            time.sleep(case.seconds)
            return
        end = time.monotonic() + self.seconds
        while last_step(output) < case.records and is_alive(leader) and time.monotonic() < end:
            time.sleep(0.005)

    @staticmethod
    def _strike(case: Case, leader: int, output: Path) -> bool:
        """Remove a folder or send a signal; false if there was none, or no process."""
        if case.kind == "removed":
            folder = run_folder(output) if output.exists() else None
            if folder is None:
                return False
            if case.what == "moved":
                output.rename(output.with_name("moved"))
            elif case.what == "metrics.jsonl":
                (folder / case.what).unlink(missing_ok=True)
            else:
                place = {"output": output, "run folder": folder, "wandb": folder / "wandb"}[case.what]
                shutil.rmtree(place, ignore_errors=True)
            return True
        if not case.what.startswith("SIG"):
            return True
        if not is_alive(leader):
            return False
        name, _, everybody = case.what.partition(" ")
        number = signal.Signals[name]
        targets = [leader]
        if case.kind == "W&B dies":
            targets = session(leader, "wandb-core")
        elif case.kind in ("signal to a rank", "halt"):
            ranks = [pid for pid in session(leader, "spawn_main") if pid != leader]
            targets = ranks[case.victim : case.victim + 1]
        with suppress(ProcessLookupError):
            if everybody:
                os.killpg(leader, number)
            for pid in targets if not everybody else []:
                os.kill(pid, number)
            return bool(everybody or targets)
        return False
