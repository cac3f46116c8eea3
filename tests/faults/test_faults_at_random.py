"""500 runs with a random fault, most with Weights & Biases: status, messages, and continuation."""

import json
import queue
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fault_cases import KINDS, Bench, Case, Outcome, case_of
from interrupting import run_folder
from resuming import records_in
from strict_json import require_json

CASES, PARTS = 500, 10
AT_ONCE = 2
LINES = (
    r"error: ",
    r"a checkpoint was not written, the training continues: ",
    r"Weights & Biases failed, the training continues without it: ",
    r"standard output failed, the command continues: ",
    r"stopp(ed|ing)\b",
    r"interrupted$",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator["queue.Queue[Bench]"]:
    free: queue.Queue[Bench] = queue.Queue()
    made = [Bench(tmp_path_factory.mktemp("bench")) for _ in range(AT_ONCE)]
    for bench in made:
        free.put(bench)
    yield free
    for bench in made:
        bench.close()


@pytest.fixture(scope="module")
def expected(benches: "queue.Queue[Bench]", tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    bench = benches.get()
    with bench.happen(Case(-1, "none", "nothing", 1, True, False, None, 0, 0)) as outcome:
        assert (outcome.status, outcome.err) == (0, "")
        found = results_in(outcome.output)
    benches.put(bench)
    return found


def results_in(output: Path) -> dict[str, Any]:
    folder = run_folder(output)
    summary = json.loads((folder / "summary.json").read_text())
    return {"records": records_in(folder), "layers": summary["layers"], "best": summary["best"]}


@pytest.mark.parametrize("part", range(PARTS))
def test_faults_at_random(part: int, benches: "queue.Queue[Bench]", expected: dict[str, Any]) -> None:
    struck: list[bool] = []

    def judge(case: Case) -> str:
        bench = benches.get()
        try:
            with bench.happen(case) as outcome:
                struck.append(outcome.struck)
                wrong = list(faults_of(outcome))
                if not wrong:
                    again = bench.again(outcome)
                    wrong = list(faults_afterwards(outcome, again, expected))
            return f"{case}: {'; '.join(wrong)}\n{outcome.err}" if wrong else ""
        finally:
            benches.put(bench)

    cases = [case_of(number) for number in range(part, CASES, PARTS)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [told for told in pool.map(judge, cases) if told]
    assert not wrong, "\n\n".join(wrong)
    assert sum(struck) > 0.8 * CASES / PARTS  # the other runs ended before their fault


def faults_of(outcome: Outcome) -> Iterator[str]:
    """Errors in status, messages and processes at the end of a run."""
    case, lines = outcome.case, outcome.err.splitlines()
    if outcome.left_alive:
        yield f"left {len(outcome.left_alive)} processes"
    if strange := [line for line in lines if not any(re.match(known, line) for known in LINES)]:
        yield f"says {strange[0]!r}"
    is_over = "run folder: " in outcome.out  # output and files are complete, and the interpreter is ending
    if outcome.status not in (0, 1, 130, 143, -signal.SIGKILL, -signal.SIGTERM) and not (
        is_over and outcome.status == -signal.SIGINT
    ):
        yield f"ends with {outcome.status}"
    heard = outcome.case.what not in ("stderr closed", "both closed")
    errors = [line for line in lines if line.startswith("error: ")]
    if heard and len(errors) != (outcome.status == 1):
        yield f"ends with {outcome.status} and {len(errors)} errors"
    if outcome.status in (130, 143) and not re.search("^(stopped|interrupted)", outcome.err, re.M):
        yield "stops without a word"
    if case.kind in ("stream", "W&B dies") and outcome.status != 0:
        yield f"ends with {outcome.status} for what does not concern the training"
    if outcome.status == 1 and case.what.startswith(("SIGINT", "SIGTERM")) and case.kind == "signal":
        yield "fails when it is asked to stop"
    if len(lines) > 6:
        yield f"says {len(lines)} lines"
    claims = re.search(r"stopped after step (\d+); its state is saved", outcome.err)
    if claims and case.kind == "removed" and case.what != "wandb":
        yield "claims a state that is gone"


def faults_afterwards(outcome: Outcome, again: Outcome, expected: dict[str, Any]) -> Iterator[str]:
    """Errors in the files of the interrupted run, and in the results of the same command afterwards."""
    if outcome.case.kind == "removed" and "metrics.jsonl is missing; resume=never runs it again" in again.err:
        return  # removed between the last record and the summary
    if again.status != 0 or again.err:
        yield f"again: ends with {again.status}: {again.err}"
        return
    claimed = re.search(r"stopped after step (\d+); its state is saved", outcome.err)
    if claimed and f"continuing after step {claimed[1]} " not in again.out:
        yield f"again: does not go on after step {claimed[1]}"
    found = results_in(again.output)
    for name, value in expected.items():
        if found[name] != value:
            yield f"again: other {name}"
    folder = run_folder(again.output)
    if (folder / "checkpoint").exists() or list(folder.glob("**/*.partial")):
        yield "again: leaves checkpoints or parts of files"
    for path in folder.glob("*.json*"):
        if path.name != "metrics.previous.jsonl":  # of the interrupted run; a full disk may have truncated it
            require_json(path)
    if outcome.status != -signal.SIGKILL and list(outcome.temporary.glob("total-error-*")):
        yield "leaves a folder of its launcher"


def test_cases_are_of_all_kinds() -> None:
    cases = [case_of(number) for number in range(CASES)]
    assert {(case.kind, case.what) for case in cases} == {
        (k, w) for k, (_, all_of) in KINDS.items() for w in all_of
    }
    assert sum(case.tracker for case in cases) > CASES / 2
