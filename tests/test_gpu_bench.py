"""`make gpu` on a CPU: its parts in small sizes, time limits and failures of parts, the page and goals."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import resolved
from interpreter import install
from torch import Tensor

from benchmarks.gpu import __main__ as driver
from benchmarks.gpu import job, kernel_tests, machine, methods, nccl, paper, sizes, step
from benchmarks.gpu.goals import OF_READY, SIZES, judge
from benchmarks.gpu.measuring import Options, lone_group
from benchmarks.gpu.page import page, tables
from benchmarks.gpu.parts import PARTS, TOTAL_SECONDS

ROOT = Path(__file__).parents[1]
METHODS = {path.stem for path in (ROOT / "conf" / "compressor").glob("*.yaml")}


needs_interpreter = pytest.mark.skipif(
    torch.cuda.is_available() or find_spec("triton") is None, reason="the kernels are not interpreted"
)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rows_of(measure: Callable[[Options, Any], None], seconds: float = 600.0) -> dict[str, list[dict]]:
    """The rows that a part records on the CPU, by table."""
    found: dict[str, list[dict]] = {}

    def record(table: str, /, **row: object) -> None:
        found.setdefault(table, []).append(json.loads(json.dumps(row)))

    measure(Options(torch.device("cpu"), True, time.monotonic() + seconds), record)
    assert tables([{"table": name, **row} for name, rows in found.items() for row in rows])
    return found


def verdicts(table: str, rows: list[dict], *, quick: bool = False) -> dict[str, str]:
    """The verdicts on all goals for which ``rows`` have numbers."""
    goals = judge([{"table": table, **row} for row in rows], quick)
    return {f"{goal.what}: {goal.found}": goal.verdict for goal in goals if goal.found}


@needs_interpreter
def test_kernels_are_measured_and_select_what_the_reference_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import kernels_cuda

    install()
    monkeypatch.setitem(sizes.QUICK, "tiny", 4400)
    found = rows_of(kernels_cuda.measure_kernels)
    by_work = {row["work"]: row for row in found["bandwidth"]}
    assert {"copy", "select, threshold 0.1 %", "select, Top-k 0.1 %", OF_READY} <= by_work.keys()
    assert f"of torch {torch.__version__}" in by_work[OF_READY]["torch"]
    assert [row["result"] for row in found["checks"]] == 2 * ["equal"] + 3 * ["found"]
    assert found["PowerSGD"][0]["elements"] == 4400
    monkeypatch.setattr(sizes, "free_bytes", lambda device: 1000)
    found = rows_of(kernels_cuda.measure_kernels)
    assert found.keys() == {"not measured"}
    assert "GiB of memory" in found["not measured"][0]["reason"]


@needs_interpreter
def test_a_wrong_selection_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.gpu import selection
    from compressors.kernels.gpu.backend import GpuKernels
    from compressors.kernels.reference import Backend

    install()

    def forgets(self: object, *arguments: Any) -> list:
        (found,) = Backend().compress(*arguments)
        return [found._replace(payloads=[own._replace(values=own.values + 1) for own in found.payloads])]

    monkeypatch.setattr(GpuKernels, "compress", forgets)
    torch.manual_seed(0)  # in 1 % of draws no entry reaches the threshold

    def check(options: Options, record: Any) -> None:
        selection.check_size(options, record, "tiny", 4400)
        selection._check_planted(options, record, 1, 4400)

    found = rows_of(check)["checks"]
    assert [row["result"] for row in found] == 2 * ["differ: values"] + 3 * ["WRONG"]
    assert set(verdicts("checks", found, quick=True).values()) == {"missed"}


def test_every_method_is_measured_and_one_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {row["method"].split(",")[0] for row in rows_of(methods.measure)["methods"]} == METHODS
    over = rows_of(methods.measure, seconds=0.0)
    assert {row["what"].split(",")[0].split(" at ")[0] for row in over["not measured"]} == METHODS

    def times(options: Options, yardstick: object, case: object, drawn: Tensor) -> dict[str, float]:
        if str(case) == "qsgd":
            raise RuntimeError("no kernel image\nis available")
        return {"ms": 1.0, "bytes_an_entry": 16.0}

    monkeypatch.setattr(methods, "_times", times)
    found = rows_of(methods.measure)
    assert found["failures"] == [{"what": "qsgd at tiny", "error": "RuntimeError: no kernel image"}]
    assert {row["method"].split(",")[0] for row in found["methods"]} == METHODS - {"qsgd"}
    assert "missed" in verdicts("failures", found["failures"], quick=True).values()


def test_steps_and_their_memory() -> None:
    found = rows_of(step.measure)
    assert len(found["steps"]) == 2 * (1 + 2 * len(step.METHODS))
    for row in found["steps"]:
        if "scope" in row:
            parts = [row[f"{name}_ms"] for name in ("gradient", "reduce", "ledger", "update")]
            assert min(parts) > 0 and max(parts) < row["step_ms"]
            assert row["share_of_step"] == (row["reduce_ms"] + row["ledger_ms"]) / row["step_ms"]
    rows = rows_of(step.measure_memory)["memory"]
    assert all(row["peak_mib"] > row.get("gradients_mib", 0) for row in rows)
    with_feedback = [row for row in rows if row.get("residuals_mib")]
    assert {row["method"] for row in with_feedback} == step.METHODS.keys() - {"none"}


def test_the_papers_preset_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "METHODS", {"hard_threshold": ()})
    (row,) = rows_of(paper.measure)["paper"]
    assert row["steps"] == 1 and row["steps_of_them"] == 300 * 25  # 100 images in batches of 2 x 2
    assert row["hours_for_300_epochs"] > 7500 * row["step_ms"] / 3.6e6 > 0


@pytest.mark.slow
@pytest.mark.parametrize("quantity", ["", "bytes_sent", "accuracy"])
def test_the_default_job(quantity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """run.py accepts the commands, and a ``quantity`` that differs between the devices is found."""

    def start(overrides: list[str], seconds: float) -> subprocess.CompletedProcess:
        config = resolved(*overrides)
        numbers = dict.fromkeys(job.NUMBERS, 0.5) | {"test/accuracy": 0.9 + 0.01 * config["seed"]}
        if config["device"] == "cuda":
            numbers |= {key: 0.94 for key, name in job.NUMBERS.items() if name == quantity}
        (folder := Path(config["output"]) / "name" / "id").mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(numbers))
        return subprocess.CompletedProcess(overrides, 0, "", "")

    monkeypatch.setattr(job, "_start", start)
    rows: list[dict] = []
    options = Options(torch.device("cuda"), False, time.monotonic() + 60)
    job.measure(options, lambda table, /, **row: rows.append({"table": table, **row}))
    agrees = {row["quantity"]: row["agrees"] for row in rows if row["table"] == "comparison"}
    assert agrees == {name: name != quantity for name in ("bytes_sent", "density", "accuracy")}


def test_collectives_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with lone_group(torch.device("cpu")):
        assert len(list(nccl._run_checks(1, 0, torch.device("cpu"), True))) == 7
    monkeypatch.setattr(nccl.Communicator, "all_reduce_mean", lambda self, rows: [r[0] for r in rows])
    with pytest.raises(AssertionError, match="worker_order"):
        nccl._check_sums(1, 0, torch.device("cpu"))


def test_tests_are_counted_and_failures_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test file is outside of tests/, so that pytest starts quickly."""
    file = tmp_path / "test_some.py"
    lines = ["import pytest", "def test_a(): pass", "def test_b(): assert 1 == 2, 'one is not two'"]
    file.write_text("\n".join([*lines, "@pytest.mark.skip", "def test_c(): pass"]))
    monkeypatch.setattr(kernel_tests, "FILES", {str(file): (), "tests/other.py": ("no_such_package",)})
    monkeypatch.setattr(kernel_tests, "FEW", "test")
    found = rows_of(kernel_tests.measure)
    assert found["tests"] == [{"where": "Triton's interpreter", "passed": 1, "failed": 1, "skipped": 1}]
    assert found["not measured"] == [{"what": "tests/other.py", "reason": "no_such_package missing"}]
    assert "one is not two" in found["failed tests"][0]["why"]


def test_rows_of_a_part_are_kept_however_it_ends() -> None:
    row = "import sys, pathlib; file = pathlib.Path(sys.argv[-1][7:]); "
    row += 'file.write_text(\'{"table": "tests"}\\n{"table": "ha\'); '
    done = driver.supervise([sys.executable, "-c", row], 20)
    assert done["status"] == "done" and done["rows"] == [{"table": "tests"}] and "last_lines" not in done
    failed = driver.supervise([sys.executable, "-c", row + "print('on the way'); sys.exit('broken')"], 20)
    assert failed["status"] == "failed with status 1" and failed["rows"] == [{"table": "tests"}]
    assert failed["last_lines"] == ["on the way", "broken"]


def test_a_part_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    other = f"import time, pathlib; time.sleep(1.6); pathlib.Path({str(mark)!r}).touch()"
    command = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {other!r}])"
    started = time.monotonic()
    found = driver.supervise([sys.executable, "-c", f"{command}; time.sleep(60)"], 1.0)
    assert time.monotonic() - started < 10
    assert found["status"] == "ended after its 1 s" and found["rows"] == []
    time.sleep(1.2)
    assert not mark.exists()


GPU = {"name": "NVIDIA H200", "memory_gib": 139.8, "multiprocessors": 132, "capability": "9.0"}
MACHINE = {
    "versions": {"python": "3.12.3", "torch": "2.11.0+cu130"},
    "gpus": [GPU | {"datasheet_gigabytes_per_second": machine.datasheet_bandwidth(GPU["name"])}],
    **{"system": "Linux", "processor": "X", "cores": 16, "convolutions_in_tf32": True},
    **{"torch_cuda": "13.0", "cudnn": 91000, "nccl": "2.28", "driver": "580"},
}


def command_line(monkeypatch: pytest.MonkeyPatch, run: Any, *words: str, machine: dict = MACHINE) -> int:
    """The command line of the driver, with parts that ``run`` or end as in it."""
    monkeypatch.setattr(driver, "_machine", lambda: json.loads(json.dumps(machine)))
    monkeypatch.setattr(driver, "_run", run if callable(run) else lambda name, *_: dict(run[name]))
    return driver.main(words)


REFUSED = [
    ({"gpus": []}, "--commit=a", "missing: GPU: torch sees none"),
    ({"gpus": [], "torch_cuda": None}, "--commit=a", "is a build without CUDA, which could not use one"),
    ({"versions": {"torch": "2.4.1"}}, "--commit=a", "missing: torch: 2.4.1 is older than 2.9"),
    ({}, "--parts=x", "error: --parts must be some of tests, band"),
    ({}, "--device=cpu", "error: --device cpu measures nothing: it needs --quick"),
    ({}, "--together=x", "error: --together must be some of the parts tests"),
]


@pytest.mark.parametrize(("lacks", "word", "said"), REFUSED)
def test_refusals_leave_no_page(
    lacks: dict,
    word: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
) -> None:
    assert command_line(monkeypatch, {}, f"--out={tmp_path}", word, machine=MACHINE | lacks) == 1
    assert said in "".join(capsys.readouterr())
    assert not list(tmp_path.iterdir())


def test_parts_together_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=30)  # raises unless two parts are inside at once
    order = []

    def run(name: str, *_: object) -> dict:
        if name in ("tests", "job"):
            both.wait()
        order.append(name)
        return {"status": "done", "rows": [], "seconds": 1.0}

    words = ("--parts=step,tests,job", "--together=job,tests", "--commit=abc")
    command_line(monkeypatch, run, f"--out={tmp_path}", *words)
    assert set(order[:2]) == {"tests", "job"} and order[2] == "step"
    text = (tmp_path / "gpu.md").read_text()
    assert all(f"at the same time as {name}" in text for name in ("job", "tests")) and "upper bounds" in text


def test_an_interruption_ends_the_parts_that_run(tmp_path: Path) -> None:
    """Ctrl-C reaches the thread that waits; the children of the other threads end with it."""
    script = f"""
import os, signal, sys, threading
from benchmarks.gpu import __main__ as driver
driver._machine = lambda: {MACHINE!r}
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
driver._run = lambda name, device, quick, limit: driver.supervise(sleeper, 300)
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
driver.main(["--out={tmp_path}", "--parts=tests,job", "--together=tests,job", "--commit=abc"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert b"KeyboardInterrupt" in done.stderr


def test_the_page_has_the_parts_that_ran_and_keeps_earlier_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    """Parts with missing packages are left out; a later command for one part keeps the other numbers."""
    spec = driver.importlib.util.find_spec
    monkeypatch.setattr(driver.importlib.util, "find_spec", lambda n: None if n == "hydra" else spec(n))
    row = {"table": "bandwidth", "work": "select, Top-k 0.1 %", "share_of_copy": 0.8}
    found = {name: {"status": "done", "rows": [], "seconds": 1.0} for name in PARTS}
    found["bandwidth"]["rows"] = [row | {"size": size} for size in SIZES]
    found["nccl"] = {"status": "ended after its 35 s", "rows": [], "last_lines": ["a | b", "stuck"]}
    assert command_line(monkeypatch, found, f"--out={tmp_path}", "--commit=abc") == 1
    assert "missing: hydra: " in (said := capsys.readouterr().out) and "has no package hydra-core" in said

    def parts() -> dict:
        return json.loads((tmp_path / "numbers.json").read_text())["parts"]

    status = {name: own["status"] for name, own in parts().items()}
    assert (status["tests"], status["job"], status["step"]) == ("done", "not run: hydra missing", "done")
    text = (tmp_path / "gpu.md").read_text()
    for part in ("NVIDIA H200", "4800 GB/s by its datasheet", "torch 2.11.0+cu130", "- Commit: abc", "stuck"):
        assert part in text
    assert "share of the copy's bandwidth | at least 60% | 80.0% | met |" in text
    found["nccl"] = {"status": "done", "rows": [], "seconds": 1.0}
    again = (f"--out={tmp_path}", "--parts=nccl")
    assert command_line(monkeypatch, found, *again, "--commit=abd") == 0
    assert parts()["bandwidth"]["rows"] == found["bandwidth"]["rows"] and parts()["nccl"]["commit"] == "abd"
    assert command_line(monkeypatch, found, *again, "--quick") == 0
    assert "ran on the GPU in small sizes" in (tmp_path / "gpu.md").read_text()
    assert command_line(monkeypatch, found, *again, machine=MACHINE | {"driver": "590"}) == 0
    assert parts().keys() == {"nccl"}


def test_goals_of_speed() -> None:
    """Each goal, met and missed; a quick run says nothing about speed."""
    threshold = {"work": "select, threshold 0.1 %"}
    rows = [{**threshold, "size": size, "share_of_copy": 0.69} for size in ("11 M", "100 M")]
    assert list(verdicts("bandwidth", rows).values()) == ["met", "missed"]
    ready = {"work": OF_READY, "times_faster_than_torch": 21.0, "torch": "operators of torch 2.11"}
    rows = [{**ready, "size": s, "times_faster_than_topk": t} for s, t in (("11 M", 9.9), ("1 B", 10.0))]
    (slow, missed), (_, met) = verdicts("bandwidth", rows).items()
    assert (missed, met) == ("missed", "met")
    assert slow.endswith("9.9; 21.0 times faster than operators of torch 2.11")
    top_k = {"scope": "layer", "method": "top_k 0.1 %", "share_of_step": 0.031}
    assert list(verdicts("steps", [{**top_k, "workers": w} for w in (1, 8)]).values()) == ["met", "missed"]
    none = {"method": "none", "workers": 1}
    rows = [{**none, "scope": s, "times_torchs_loop": t} for s, t in (("layer", 1.05), ("global", 1.06))]
    assert list(verdicts("steps", rows).values()) == ["met", "missed"]
    times = {"hard_threshold": 0.5, "top_k": 5.0, "powersgd": 9.0}
    rows = [{"size": "11 M", "method": name, "ms": ms} for name, ms in times.items()]
    what = "a reduction with each method at 11 M"
    assert verdicts("methods", rows)[f"{what}: 2 of 2"] == "met"
    rows[1]["ms"] = 5.1
    assert verdicts("methods", rows)[f"{what}: 1 of 2; top_k 10"] == "missed"
    assert list(verdicts("backend", [{"compression_by": "reference"}]).values()) == ["missed"]
    assert not verdicts("steps", [{**top_k, "workers": 8}], quick=True)


def test_the_docs_name_every_part_and_its_time() -> None:
    text = (ROOT / "docs" / "gpu.md").read_text()
    rows = re.findall(r"^\| `([a-z]+)` \| .* \| (\d+) \| .* \|$", text, re.MULTILINE)
    assert rows == [(name, f"{part.seconds:g}") for name, part in PARTS.items()]
    assert sum(part.seconds for part in PARTS.values()) <= TOTAL_SECONDS <= 530, "below nine minutes"


def test_the_recorded_page_follows_from_its_numbers() -> None:
    numbers = json.loads((ROOT / "results/pages/gpu/numbers.json").read_text())
    assert page(numbers) == (ROOT / "results/pages/gpu/gpu.md").read_text()
    numbers["parts"]["nccl"]["rows"] = [{"table": "checks", "what": "a | b\nc", "result": 1.5}]
    assert "| a / b c | 1.5 |" in page(numbers), "no row has two lines"


@pytest.mark.slow
def test_the_command_on_a_cpu(tmp_path: Path) -> None:
    words = ["--device=cpu", "--quick", f"--out={tmp_path}"]
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    assert subprocess.run(command, cwd=ROOT, timeout=540, check=False).returncode == 0
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert {name: own["status"] for name, own in numbers["parts"].items()} == dict.fromkeys(PARTS, "done")
