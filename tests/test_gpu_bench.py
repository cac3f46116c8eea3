"""`make gpu` on a CPU: its parts in small sizes, time limits and failures of parts, the page."""

import ast
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import resolved
from interpreter import install
from torch import Tensor

from benchmarks.gpu import __main__ as driver
from benchmarks.gpu import job, kernel_tests, machine, measuring, methods, nccl, paper, sizes, step
from benchmarks.gpu.goals import BANDWIDTH, SIZES, judge
from benchmarks.gpu.measuring import Options, lone_group
from benchmarks.gpu.page import page, tables
from benchmarks.gpu.parts import PARTS, TOTAL_SECONDS

ROOT = Path(__file__).parents[1]
MEASURED = ("step_ms", "gradient_ms", "reduce_ms", "first_step_ms", "loss")
METHODS = {path.stem for path in (ROOT / "conf" / "compressor").glob("*.yaml")}


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def interpreter(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("with a GPU the kernels are not interpreted")
    install()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def rows_of(measure: Callable[[Options, Any], None], seconds: float = 600.0) -> dict[str, list[dict]]:
    """The rows that a part records on the CPU, by table."""
    found: dict[str, list[dict]] = {}

    def record(table: str, /, **row: object) -> None:
        found.setdefault(table, []).append(json.loads(json.dumps(row)))

    measure(Options(torch.device("cpu"), True, time.monotonic() + seconds), record)
    assert tables([{"table": name, **row} for name, rows in found.items() for row in rows])
    return found


@pytest.mark.usefixtures("interpreter")
def test_kernels_are_measured_and_select_what_the_reference_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import kernels_cuda

    monkeypatch.setitem(sizes.QUICK, "tiny", 4400)
    found = rows_of(kernels_cuda.measure_kernels)
    work = {row["work"] for row in found["bandwidth"]}
    assert {"copy", "select, threshold 0.1 %", "select, Top-k 0.1 %", "torch.topk(p.abs(), k)"} <= work
    assert [row["result"] for row in found["checks"]] == 2 * ["equal"] + 3 * ["found"]
    assert found["PowerSGD"][0]["elements"] == 4400


@pytest.mark.usefixtures("interpreter")
def test_a_wrong_selection_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.gpu import selection
    from compressors.kernels.gpu.backend import GpuKernels
    from compressors.kernels.reference import Backend

    def forgets(self: object, *arguments: Any) -> list:
        (found,) = Backend().compress(*arguments)
        return [found._replace(payloads=[own._replace(values=own.values + 1) for own in found.payloads])]

    monkeypatch.setattr(GpuKernels, "compress", forgets)

    def check(options: Options, record: Any) -> None:
        selection.check_size(options, record, "tiny", 4400)
        selection._check_planted(options, record, 1, 4400)

    found = rows_of(check)["checks"]
    assert [row["result"] for row in found] == 2 * ["differ: values"] + 3 * ["WRONG"]
    assert judge([{"table": "checks", **row} for row in found], True)[1].verdict == "missed"


@pytest.mark.usefixtures("one_thread")
def test_every_method_is_measured() -> None:
    found = rows_of(methods.measure)
    assert {row["method"].split(",")[0] for row in found["methods"]} == METHODS
    over = rows_of(methods.measure, seconds=0.0)
    assert {row["what"].split(",")[0].split(" at ")[0] for row in over["not measured"]} == METHODS


@pytest.mark.usefixtures("one_thread")
def test_one_method_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(options: Options, yardstick: object, case: object, drawn: Tensor) -> dict[str, float]:
        if str(case) == "qsgd":
            raise RuntimeError("no kernel image\nis available")
        return {"ms": 1.0, "bytes_an_entry": 16.0}

    monkeypatch.setattr(methods, "_times", times)
    found = rows_of(methods.measure)
    assert found["failures"] == [{"what": "qsgd at tiny", "error": "RuntimeError: no kernel image"}]
    assert {row["method"].split(",")[0] for row in found["methods"]} == METHODS - {"qsgd"}
    every = [{"table": name, **row} for name, rows in found.items() for row in rows]
    assert "missed" in [goal.verdict for goal in judge(every, True)]


@pytest.mark.usefixtures("interpreter")
def test_sizes_without_room_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import kernels_cuda

    monkeypatch.setattr(sizes, "free_bytes", lambda device: 1000)
    found = rows_of(kernels_cuda.measure_kernels)
    assert found.keys() == {"not measured"}
    assert "GiB of memory" in found["not measured"][0]["reason"]


@pytest.mark.usefixtures("one_thread")
def test_steps() -> None:
    found = rows_of(step.measure)
    assert "compression_by" in found["backend"][0]
    rows = found["steps"]
    assert len(rows) == 2 * (1 + 2 * len(step.METHODS))
    for row in rows:
        if "scope" in row:
            parts = [row[f"{name}_ms"] for name in ("gradient", "reduce", "ledger", "update")]
            assert min(parts) > 0 and max(parts) < row["step_ms"]
            assert row["share_of_step"] == (row["reduce_ms"] + row["ledger_ms"]) / row["step_ms"]


@pytest.mark.usefixtures("one_thread")
def test_memory_of_steps() -> None:
    rows = rows_of(step.measure_memory)["memory"]
    assert all(row["peak_mib"] > row.get("gradients_mib", 0) for row in rows)
    with_feedback = [row for row in rows if row.get("residuals_mib")]
    assert {row["method"] for row in with_feedback} == step.METHODS.keys() - {"none"}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_precision_and_compiler() -> None:
    rows = rows_of(step.measure_precision)["precision"]
    assert not any("failed" in row for row in rows)
    assert [row["graph_breaks"] for row in rows if "graphs" in row] == [0, 0]
    assert max(row["loss"] for row in rows) < 1.1 * min(row["loss"] for row in rows)


@pytest.mark.usefixtures("one_thread")
def test_one_way_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: torch.device) -> None:
        raise ValueError("this device does not compute in bf16")

    monkeypatch.setattr(step, "require_bf16", refuse)
    monkeypatch.setattr(step.Training, "measured", lambda *_: dict.fromkeys(MEASURED, 1.0))
    rows = rows_of(step.measure_precision)["precision"]
    failed = [row["failed"] for row in rows if "failed" in row]
    assert failed[:2] == 2 * ["this device does not compute in bf16"]
    assert failed[2:] == ["torch.compile compiled nothing", "this device does not compute in bf16"]
    (goal,) = (g for g in judge([{"table": "precision", **r} for r in rows], True) if g.found == "2 of 6")
    assert goal.verdict == "missed"


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_papers_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATA_DIR", raising=False)
    rows = rows_of(paper.measure)["paper"]
    assert [row["method"] for row in rows] == list(paper.METHODS)
    for row in rows:
        assert "random images" in row["data"]
        expected = row["steps_of_them"] * row["step_ms"] + 2 * 300 * row["evaluation_ms"]
        assert row["hours_for_300_epochs"] == pytest.approx(expected / 3.6e6)


@pytest.mark.slow
def test_the_default_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """run.py accepts the commands, differences between devices are found, a failed command is an error."""
    asked: list[dict] = []
    wrong: dict[str, float] = {}

    def start(overrides: list[str], seconds: float) -> subprocess.CompletedProcess:
        config = resolved(*overrides)
        asked.append({key: config[key] for key in ("device", "seed", "workers")})
        numbers = dict.fromkeys(job.NUMBERS, 0.5) | {"test/accuracy": 0.9 + 0.01 * config["seed"]}
        folder = Path(config["output"]) / "name" / "id"
        folder.mkdir(parents=True)
        numbers |= wrong if config["device"] == "cuda" else {}
        (folder / "summary.json").write_text(json.dumps(numbers))
        return subprocess.CompletedProcess(overrides, 0, "", "")

    monkeypatch.setattr(job, "_start", start)
    monkeypatch.setattr(job.os, "cpu_count", lambda: 1)
    assert all(row["agrees"] for row in rows_of(job.measure)["comparison"])
    on_gpu = Options(torch.device("cuda"), False, time.monotonic() + 60)
    for wrong in ({}, {"comm/bytes_sent_total": 0.6}, {"test/accuracy": 0.94}):
        asked.clear()
        rows: list[dict] = []
        job.measure(on_gpu, lambda table, /, rows=rows, **row: rows.append({"table": table, **row}))
        agrees = {row["quantity"]: row["agrees"] for row in rows if row["table"] == "comparison"}
        assert agrees.keys() == {"bytes_sent", "density", "accuracy"}
        named = {"comm/bytes_sent_total": "bytes_sent", "test/accuracy": "accuracy"}
        assert [name for name, fine in agrees.items() if not fine] == [named[key] for key in wrong]
    assert sorted(own["device"] for own in asked) == 4 * ["cpu"] + 4 * ["cuda"]
    assert {own["seed"] for own in asked} == {0, 1, 2} and {own["workers"] for own in asked} == {8}
    monkeypatch.setattr(job, "_start", lambda o, s: subprocess.CompletedProcess(o, 1, "", "error: no data"))
    with pytest.raises(RuntimeError, match=r"run\.py compressor=top_k .*: error: no data"):
        rows_of(job.measure)


def test_collectives_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with lone_group(torch.device("cpu")):
        found = [what for what, _ in nccl._run_checks(1, 0, torch.device("cpu"), True)]
    assert len(found) == 7


def test_a_wrong_sum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert found["failed tests"][0]["test"] == "test_b"
    assert found["not measured"] == [{"what": "tests/other.py", "reason": "no_such_package missing"}]
    assert "one is not two" in found["failed tests"][0]["why"]
    monkeypatch.setattr(kernel_tests.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 4))
    with pytest.raises(SystemExit, match="pytest ended with status 4"):
        rows_of(kernel_tests.measure)


WRITE = "import sys, pathlib; file = pathlib.Path(sys.argv[-1][7:]); "


def test_what_a_part_left_is_kept_however_it_ends() -> None:
    row = WRITE + 'file.write_text(\'{"table": "tests"}\\n{"table": "ha\'); '
    done = driver.supervise([sys.executable, "-c", row], 20)
    assert done["status"] == "done" and done["rows"] == [{"table": "tests"}] and "last_lines" not in done
    failed = driver.supervise([sys.executable, "-c", row + "print('on the way'); sys.exit('broken')"], 20)
    assert failed["status"] == "failed with status 1" and failed["rows"] == [{"table": "tests"}]
    assert failed["last_lines"] == ["on the way", "broken"]


def test_a_part_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    """The part is ended at its time limit."""
    mark = tmp_path / "alive"
    other = f"import time, pathlib; time.sleep(1.6); pathlib.Path({str(mark)!r}).touch()"
    script = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {other!r}]); time.sleep(60)"
    )
    started = time.monotonic()
    found = driver.supervise([sys.executable, "-c", script], 1.0)
    assert time.monotonic() - started < 10
    assert found["status"] == "ended after its 1 s" and found["rows"] == []
    time.sleep(1.2)
    assert not mark.exists()


GPU = {"name": "NVIDIA H200", "memory_gib": 139.8, "multiprocessors": 132, "capability": "9.0"}
MACHINE = {
    "versions": {"python": "3.12.3", "torch": "2.11.0+cu130"},
    "system": "Linux",
    "processor": "X",
    "cores": 16,
    "gpus": [GPU | {"datasheet_gigabytes_per_second": machine.datasheet_bandwidth(GPU["name"])}],
    "torch_cuda": "13.0",
    "cudnn": 91000,
    "nccl": "2.28",
    "driver": "580",
    "convolutions_in_tf32": True,
}


def command_line(monkeypatch: pytest.MonkeyPatch, found: dict, *words: str, machine: dict = MACHINE) -> int:
    """The command line of the driver, with parts that end as in ``found``."""
    monkeypatch.setattr(driver, "_machine", lambda: json.loads(json.dumps(machine)))
    monkeypatch.setattr(driver, "_run", lambda name, *_: dict(found[name]))
    return driver.main(words)


BARE = {"gpus": []}
LACKING = [
    (BARE, "missing: GPU: torch sees none"),
    (BARE | {"torch_cuda": None, "versions": {"torch": "2.13.0+cpu"}}, "2.13.0+cpu is a build without CUDA"),
    ({"versions": {"torch": "2.4.1"}}, "missing: torch: 2.4.1 is older than 2.9"),
]


@pytest.mark.parametrize(("lacks", "said"), LACKING)
def test_without_a_gpu_it_says_so_and_leaves_no_page(
    lacks: dict, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    assert command_line(monkeypatch, {}, f"--out={tmp_path}", machine=MACHINE | lacks) == 1
    assert said in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_parts_together_run_at_the_same_time_and_the_page_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = threading.Barrier(2, timeout=30)  # raises unless two parts are inside at once
    order = []

    def run(name: str, *_: object) -> dict:
        if name in ("tests", "job"):
            both.wait()
        order.append(name)
        return {"status": "done", "rows": [], "seconds": 1.0}

    monkeypatch.setattr(driver, "_machine", lambda: json.loads(json.dumps(MACHINE)))
    monkeypatch.setattr(driver, "_run", run)
    driver.main([f"--out={tmp_path}", "--parts=step,tests,job", "--together=job,tests", "--commit=abc"])
    assert set(order[:2]) == {"tests", "job"} and order[2] == "step"
    text = (tmp_path / "gpu.md").read_text()
    assert (
        "at the same time as job" in text and "at the same time as tests" in text and "upper bounds" in text
    )
    assert "beside" not in json.loads((tmp_path / "numbers.json").read_text())["parts"]["step"]


def test_an_interruption_ends_the_parts_that_run(tmp_path: Path) -> None:
    """Ctrl-C reaches the thread that waits; the children of the other threads end with it."""
    script = f"""
import os, signal, sys, threading
from benchmarks.gpu import __main__ as driver
driver._machine = lambda: {MACHINE!r}
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
driver._run = lambda name, device, quick, limit: driver.supervise(sleeper, 300)
threading.Timer(3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
driver.main(["--out={tmp_path}", "--parts=tests,job", "--together=tests,job", "--commit=abc"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert b"KeyboardInterrupt" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "x"], "tests, band"),
        (["--device=cpu"], "--quick"),
        (["--parts=step,job", "--together=tests"], "--together must be some of the parts step, job"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    assert driver.main(words) == 1
    assert said in capsys.readouterr().err


def test_a_page_of_what_ran_and_of_what_could_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    """Parts with missing packages are left out; a later command for one part keeps the other numbers."""
    spec = driver.importlib.util.find_spec
    monkeypatch.setattr(driver.importlib.util, "find_spec", lambda n: None if n == "hydra" else spec(n))
    fast = [
        {"table": "bandwidth", "size": s, "work": "select, Top-k 0.1 %", "share_of_copy": 0.8} for s in SIZES
    ]
    found = {name: {"status": "done", "rows": [], "seconds": 1.0} for name in PARTS}
    found["bandwidth"]["rows"] = fast
    found["nccl"] = {"status": "ended after its 35 s", "rows": [], "last_lines": ["a | b", "stuck"]}
    assert command_line(monkeypatch, found, f"--out={tmp_path}", "--commit=abc") == 1
    said = capsys.readouterr().out
    assert "missing: hydra: " in said and "has no package hydra-core" in said

    def parts() -> dict:
        return json.loads((tmp_path / "numbers.json").read_text())["parts"]

    status = {name: own["status"] for name, own in parts().items()}
    assert (status["tests"], status["job"], status["step"]) == ("done", "not run: hydra missing", "done")
    text = (tmp_path / "gpu.md").read_text()
    for part in ("NVIDIA H200", "4800 GB/s by its datasheet", "torch 2.11.0+cu130", "- Commit: abc", "stuck"):
        assert part in text
    goal = f"Top-k 0.1 % at 1 B, error included: share of the copy's bandwidth | at least {BANDWIDTH:.0%}"
    assert f"| {goal} | 80.0% | met |" in text
    found["nccl"] = {"status": "done", "rows": [], "seconds": 1.0}
    assert command_line(monkeypatch, found, f"--out={tmp_path}", "--parts=nccl", "--commit=abd") == 0
    assert parts()["bandwidth"]["rows"] == fast and parts()["nccl"]["commit"] == "abd"
    assert "measures nothing" not in (tmp_path / "gpu.md").read_text()
    assert command_line(monkeypatch, found, f"--out={tmp_path}", "--parts=nccl", "--quick") == 0
    assert "ran on the GPU in small sizes" in (tmp_path / "gpu.md").read_text()
    assert parts().keys() == {"nccl"}
    other = MACHINE | {"driver": "590"}
    assert command_line(monkeypatch, found, f"--out={tmp_path}", "--parts=nccl", machine=other) == 0
    assert parts().keys() == {"nccl"}


def test_goals_of_speed() -> None:
    rows = [
        {"table": "bandwidth", "size": "11 M", "work": "select, threshold 0.1 %", "share_of_copy": 0.69},
        {"table": "bandwidth", "size": "1 B", "work": "select, Top-k 0.1 %", "times_faster_than_topk": 10.0},
        {"table": "steps", "workers": 1, "scope": "layer", "method": "top_k 0.1 %", "share_of_step": 0.031},
    ]
    verdicts = {goal.what: goal.verdict for goal in judge(rows, False) if goal.found}
    assert list(verdicts.values()) == ["missed", "met", "missed"]
    for computes, verdict in (("triton 3.7", "met"), ("reference (triton is not installed)", "missed")):
        (found,) = [g for g in judge([{"table": "backend", "compression_by": computes}], False) if g.found]
        assert found.verdict == verdict
    assert not any(goal.found for goal in judge(rows, True)), "what is quick says nothing about speed"


class Event:
    """An event of a GPU on which every operation takes 3 ms."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = Event.now = Event.now + 3.0

    def elapsed_time(self, other: "Event") -> float:
        return other.at - self.at


def test_the_ways_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a simulated GPU: the code that does not run on a CPU."""
    device, waits, worked = torch.device("cuda", 0), [], []
    numbers = {"mem_get_info": (100, 200), "memory_reserved": 30, "memory_allocated": 10}
    numbers |= {"reset_peak_memory_stats": None, "max_memory_allocated": 77}
    made_up = {name: lambda device, value=value: value for name, value in numbers.items()}
    for name, value in (made_up | {"Event": Event, "synchronize": waits.append}).items():
        monkeypatch.setattr(torch.cuda, name, value)  # raises for a name that torch lacks
    times = measuring.milliseconds(lambda: worked.append(1), device, rounds=5)
    assert times == (3.0, 3.0, 3.0, 5) and len(worked) == 2 + 5
    assert waits == 2 * 7 * [device], "before and after every round"
    assert measuring.free_bytes(device) == 120
    assert measuring.peak_bytes(lambda: None, device) == 77
    assert hasattr(torch.autograd.profiler_util.FunctionEventAvg(), "self_device_time_total")
    assert torch.profiler.ProfilerActivity.CUDA


def test_rounds_end_with_their_time() -> None:
    """Two rounds are left out, but only one if it takes longer than ``seconds``."""
    worked: list[int] = []

    def work() -> None:
        worked.append(1)
        time.sleep(0.02)

    assert measuring.milliseconds(work, torch.device("cpu"), seconds=0.01).rounds == 1
    assert len(worked) == 2


def test_the_docs_name_every_part_and_its_time() -> None:
    text = (ROOT / "docs" / "gpu.md").read_text()
    rows = re.findall(r"^\| `([a-z]+)` \| .* \| (\d+) \| .* \|$", text, re.MULTILINE)
    assert rows == [(name, f"{part.seconds:g}") for name, part in PARTS.items()]


def test_the_whole_stays_below_nine_minutes() -> None:
    assert sum(part.seconds for part in PARTS.values()) <= TOTAL_SECONDS <= 530


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [("NVIDIA H200", 4800), ("NVIDIA H100 PCIe", 2039), ("NVIDIA H100 80GB HBM3", 3352), ("Riva 128", None)],
)
def test_datasheets(name: str, bandwidth: int | None) -> None:
    assert machine.datasheet_bandwidth(name) == bandwidth


def test_the_recorded_page_follows_from_its_numbers() -> None:
    folder = ROOT / "results/pages/gpu"
    assert page(json.loads((folder / "numbers.json").read_text())) == (folder / "gpu.md").read_text()


def test_pages_have_no_row_of_two_lines() -> None:
    of_part = {"commit": "a", "date": "b"}
    rows = [{"table": "checks", "what": "a | b\nc", "result": 1.5}]
    numbers = {"machine": MACHINE, "command": "make gpu", "quick": False, "device": "cuda", **of_part}
    numbers["parts"] = {"nccl": {"status": "done", "rows": rows, **of_part}}
    assert "| a / b c | 1.5 |" in page(numbers)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_loads_no_package_that_it_does_not_name(name: str) -> None:
    """The imports at the top of source files are followed, starting at the part's entry."""
    optional = {need for part in PARTS.values() for need in part.needs}
    allowed = {*PARTS[name].needs, "numba", "yaml"}  # imported only if installed
    seen: set[str] = set()
    waiting = [PARTS[name].entry.partition(":")[0], "benchmarks.gpu.part"]
    while waiting:
        module = waiting.pop()
        file = ROOT / Path(*module.split("."))
        path = next((p for p in (file.with_suffix(".py"), file / "__init__.py") if p.is_file()), None)
        if module in seen or path is None:
            continue
        seen.add(module)
        for node in ast.parse(path.read_text()).body:
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                found = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for other in found:
                top = other.split(".")[0]
                assert top not in optional - allowed, f"{module} imports {other}"
                waiting.append(other)
    assert len(seen) > 3


@pytest.mark.slow
def test_the_command_on_a_cpu(tmp_path: Path) -> None:
    words = ["--device=cpu", "--quick", f"--out={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *words], cwd=ROOT, timeout=540, check=False
    )
    assert done.returncode == 0
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert {name: own["status"] for name, own in numbers["parts"].items()} == dict.fromkeys(PARTS, "done")
