"""Goals for measurements on a GPU, and checks of the goals."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]
MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"
SIZES = ("11 M", "100 M", "1 B")
OF_READY = "select from p, Top-k 0.1 %"
BANDWIDTH = {"11 M": 0.6, "100 M": 0.7, "1 B": 0.7}  # by size; the host takes part of the shortest time
TIMES_TOPK, TIMES_THRESHOLD, TIMES_TORCH = 10.0, 10.0, 1.05
SHARES = {1: 0.05, 8: 0.03}  # of a step, by workers
METHODS = ("top_k 0.1 %", "hard_threshold, the rule at 0.1 %")


class Goal(NamedTuple):
    what: str
    bound: str
    found: str
    verdict: str


def judge(rows: Sequence[Row], quick: bool) -> list[Goal]:
    """Every goal, in the order of the page. A ``quick`` run has no goals on speed."""
    of_speed = [] if quick else rows
    return [
        *_working(rows),
        *_kernels(of_speed),
        *_steps(of_speed),
        *_job(rows),
        *_models(rows),
        *_collectives(rows),
    ]


def _rows(rows: Iterable[Row], table: str, **fields: object) -> list[Row]:
    return [r for r in rows if r["table"] == table and all(r.get(k) == v for k, v in fields.items())]


def _goal(what: str, bound: str, found: list[Row], key: str, fine: Callable[[Any], bool], form: str) -> Goal:
    values = [row[key] for row in found if key in row]
    if not values:
        return Goal(what, bound, "", NOT_MEASURED)
    value = values[-1]
    return Goal(what, bound, format(value, form), MET if fine(value) else MISSED)


def _all_fine(what: str, bound: str, rows: list[Row], fine: Callable[[Row], bool]) -> Goal:
    if not rows:
        return Goal(what, bound, "", NOT_MEASURED)
    right = sum(map(fine, rows))
    return Goal(what, bound, f"{right} of {len(rows)}", MET if right == len(rows) else MISSED)


def _working(rows: Sequence[Row]) -> Iterator[Goal]:
    found = _rows(rows, "tests")
    yield _goal("tests of the kernels on the GPU", "none fails", found, "failed", lambda n: n == 0, "d")
    checks = _rows(rows, "checks")
    what = "selected entries at every size, compared with the reference"
    yield _all_fine(what, "all equal", checks, lambda row: row["result"] in ("equal", "found"))
    methods = {row["method"]: row for row in _rows(rows, "methods")}
    failures = _rows(rows, "failures")
    yield _all_fine(
        "every method, and all other measurements",
        "none fails",
        [*methods.values(), *failures],
        lambda row: "error" not in row,
    )


def _kernels(rows: Sequence[Row]) -> Iterator[Goal]:
    backends = _rows(rows, "backend")
    what = "backend of the compression in steps and reductions"
    yield _all_fine(what, "Triton's", backends, lambda row: row["compression_by"].startswith("triton"))
    for work in ("threshold 0.1 %", "Top-k 0.1 %"):
        for size in SIZES:
            found = _rows(rows, "bandwidth", size=size, work=f"select, {work}")
            what = f"{work} at {size}, error and residual included: share of the copy's bandwidth"
            least = BANDWIDTH[size]
            yield _goal(what, f"at least {least:.0%}", found, "share_of_copy", _at_least(least), ".1%")
    for size in SIZES:
        found = _rows(rows, "bandwidth", size=size, work=OF_READY)
        what = f"Top-k 0.1 % of a ready p at {size}: times faster than torch.topk(p.abs(), k)"
        key, bound = "times_faster_than_topk", f"at least {TIMES_TOPK:g}"
        goal = _goal(what, bound, found, key, _at_least(TIMES_TOPK), ".1f")
        if found and "times_faster_than_torch" in found[-1]:
            beside = f"{found[-1]['times_faster_than_torch']:.1f} times faster than {found[-1]['torch']}"
            goal = goal._replace(found=f"{goal.found}; {beside}")
        yield goal
    yield _slowest(_rows(rows, "methods", size="11 M"))


def _at_least(least: float) -> Callable[[float], bool]:
    return lambda found: found >= least


def _slowest(rows: list[Row]) -> Goal:
    """PowerSGD is compared with torch's hook instead: it does not compress one long vector."""
    times = {r["method"]: r["ms"] for r in rows if "ms" in r and not r["method"].startswith("powersgd")}
    what, bound = "a reduction with each method at 11 M", f"at most {TIMES_THRESHOLD:g} times a threshold's"
    if "hard_threshold" not in times:
        return Goal(what, bound, "", NOT_MEASURED)
    ratios = {method: ms / times["hard_threshold"] for method, ms in times.items()}
    slow = [f"{method} {ratio:.0f}" for method, ratio in ratios.items() if ratio > TIMES_THRESHOLD]
    found = f"{len(ratios) - len(slow)} of {len(ratios)}" + (f"; {', '.join(slow)}" if slow else "")
    return Goal(what, bound, found, MISSED if slow else MET)


def _steps(rows: Sequence[Row]) -> Iterator[Goal]:
    for workers, most in SHARES.items():
        for scope in ("layer", "global"):
            for method in METHODS:
                found = _rows(rows, "steps", workers=workers, scope=scope, method=method)
                what = (
                    f"reduction and ledger of {method}, {workers} worker(s), scope={scope}: share of a step"
                )
                yield _goal(what, f"at most {most:.0%}", found, "share_of_step", _at_most(most), ".1%")
    for scope in ("layer", "global"):
        found = _rows(rows, "steps", workers=1, scope=scope, method="none")
        what, bound = f"a step of none with one worker, scope={scope}", f"at most {TIMES_TORCH:g} times"
        key = "times_torchs_loop"
        yield _goal(what, f"{bound} torch's own loop", found, key, _at_most(TIMES_TORCH), ".2f")


def _at_most(most: float) -> Callable[[float], bool]:
    return lambda found: found <= most


def _job(rows: Sequence[Row]) -> Iterator[Goal]:
    for method, quantity, bound in (
        ("top_k", "bytes_sent", "the CPU's exactly"),
        ("hard_threshold", "density", "within two standard deviations of the seeds"),
        ("hard_threshold", "accuracy", "within two standard deviations of the seeds"),
    ):
        found = _rows(rows, "comparison", method=method, quantity=quantity)
        what = f"the default job with {method}, 8 workers in one process: {quantity.replace('_', ' ')}"
        yield _all_fine(what, bound, found, lambda row: row["agrees"])


def _models(rows: Sequence[Row]) -> Iterator[Goal]:
    found = _rows(rows, "precision")
    what = "bf16, channels_last and torch.compile with a compressor"
    yield _all_fine(what, "all run", found, lambda row: "failed" not in row)


def _collectives(rows: Sequence[Row]) -> Iterator[Goal]:
    for several, what in ((False, "one process"), (True, "a process for each of several GPUs")):
        found = [row for row in _rows(rows, "collectives") if (row["processes"] > 1) == several]
        yield _all_fine(f"collectives and hook over NCCL with {what}", "all correct", found, lambda row: True)
