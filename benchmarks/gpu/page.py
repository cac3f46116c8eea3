"""The page of `make gpu`, written from its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.goals import judge
from benchmarks.gpu.parts import PARTS

Row = dict[str, Any]
SHARE = 0.03  # of a work's time: kernels that take less are shown together
HEADINGS = {
    "tests": "Results of tests/compressors/kernels/test_gpu_kernels.py and test_gpu_reducers.py",
    "bandwidth": "One segment of one worker in fp32; by definition 12 bytes per entry",
    "kernels": "Time of each kernel in one call",
    "checks": "Checks of the selected entries",
    "PowerSGD": "torch's PowerSGD hook of rank 4, on tensors of ResNet-18 with as many entries",
    "backend": "Backend that selects the entries; for the reference, the reason",
    "steps": "Median times of a step; its share that reduction and ledger take",
    "memory": "Peak memory during a step",
    "precision": "One worker, scope=layer; the first step includes compilation",
    "methods": "One reduction with error feedback, scope=global, one worker, density 0.1 %",
    "jobs": "Results of run.py with this method, device and seed",
    "comparison": "Means over the seeds, on the GPU and on the CPU",
    "paper": "experiment=paper/resnet18_cifar10, 8 workers of 256 images in one process",
    "collectives": "Time of the first call, including set-up; in the last row, of a later call",
    "failed tests": "Failed tests",
    "failures": "Failures",
    "not measured": "Not measured for lack of GPUs, memory or time",
}

NAMED = {
    "gigabytes_per_second": "GB/s",
    "share_of_copy": "share of the copy's bandwidth",
    "share_of_datasheet": "share of the datasheet's bandwidth",
    "times_faster_than_topk": "times faster than torch.topk",
    "times_faster_than_torch": "times faster than torch's operators",
    "times_torchs_loop": "times as long as torch's loop",
    "times_fp32": "times as long as fp32",
}


def page(numbers: Mapping[str, Any]) -> str:
    """The page in Markdown: machine, goals, and every table."""
    parts: Mapping[str, Any] = numbers["parts"]
    rows = [row for own in parts.values() for row in own.get("rows", [])]
    lines = ["# On a GPU", "", *_about(numbers), "", "## Goals", ""]
    lines += _table([goal._asdict() for goal in judge(rows, numbers["quick"])])
    lines += ["", "## Parts", ""]
    lines += _table([_state(name, parts[name]) for name in PARTS if name in parts])
    if any(own.get("beside") for own in parts.values()):
        lines += ["", "Times of parts that ran at the same time as others are upper bounds."]
    for name, part in PARTS.items():
        own = parts.get(name, {})
        if own.get("rows") or own.get("last_lines"):
            lines += ["", f"## {part.title}", "", *tables(own.get("rows", []))]
        if own.get("last_lines"):
            lines += ["", "Its last lines:", "", "```", *own["last_lines"], "```"]
    lines += ["", "The same numbers without text: `numbers.json` in this folder.", ""]
    return "\n".join(lines)


def tables(rows: Sequence[Row]) -> list[str]:
    """The tables in Markdown, one for each name in ``rows``."""
    lines: list[str] = []
    for name in dict.fromkeys(row["table"] for row in rows):
        own = [{k: v for k, v in row.items() if k != "table"} for row in rows if row["table"] == name]
        own = _longest(own) if name == "kernels" else own
        lines += ["", f"{HEADINGS[name]}:", "", *_table(own)]
    return lines[1:]


def _longest(rows: Sequence[Row]) -> list[Row]:
    """The kernels that take at least ``SHARE`` of their work's time, and the others of each work together."""
    works: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        works.setdefault((row["size"], row["work"]), []).append(row)
    found: list[Row] = []
    for own in works.values():
        least = SHARE * sum(row["ms"] for row in own)
        found += [row for row in own if row["ms"] >= least]
        if others := [row["ms"] for row in own if row["ms"] < least]:
            found.append(own[0] | {"kernel": f"{len(others)} others", "ms": sum(others)})
    return found


def _about(numbers: Mapping[str, Any]) -> Iterator[str]:
    machine = numbers["machine"]
    gpus, found = machine["gpus"], machine["versions"]
    named = ", ".join(f"{name} {version}" for name, version in found.items())
    yield f"- Command: `{numbers['command']}`"
    yield f"- Commit: {numbers['commit']}"
    if numbers["quick"]:
        where = "the GPU" if numbers["device"] == "cuda" else "the CPU"
        yield f"- Everything below ran on {where} in small sizes; this tests the code and measures nothing"
    if gpus:
        first = gpus[0]
        sold = first["datasheet_gigabytes_per_second"]
        bandwidth = f"{sold} GB/s by its datasheet" if sold else "no bandwidth of a datasheet known"
        yield (
            f"- GPU: {len(gpus)} x {first['name']}, {first['memory_gib']:.0f} GiB, {bandwidth}, "
            f"{first['multiprocessors']} multiprocessors, compute capability {first['capability']}"
        )
        yield (
            f"- Driver {machine['driver']}, CUDA {machine['torch_cuda']}, cuDNN {machine['cudnn']}, NCCL "
            f"{machine['nccl']}; convolutions in TF32: {_shown('', machine['convolutions_in_tf32'])}"
        )
    yield f"- Machine: {machine['processor']}, {machine['cores']} cores, {machine['system']}"
    yield f"- Versions: {named}"
    yield f"- Date: {numbers['date']}"


def _state(name: str, own: Row) -> dict[str, object]:
    beside = own.get("beside", ())
    return {
        "part": name,
        "content": PARTS[name].title,
        "status": own["status"] + (f", at the same time as {', '.join(beside)}" if beside else ""),
        "seconds": own.get("seconds", ""),
        "commit": own["commit"][:10],
        "date": own["date"],
    }


def _table(rows: Sequence[Row]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    sides = ["---:" if _is_number(key, rows) else "---" for key in columns]
    lines = [_line(map(_heading, columns)), f"|{'|'.join(sides)}|"]
    return lines + [_line(_shown(key, row.get(key, "")) for key in columns) for row in rows]


def _heading(key: str) -> str:
    """ "reduce, ms" from ``reduce_ms``: the last word is the unit."""
    name, _, unit = key.rpartition("_")
    if name and unit in ("ms", "mib"):
        return f"{name.replace('_', ' ')}, {unit.replace('mib', 'MiB')}"
    return NAMED.get(key, key.replace("_", " "))


def _line(cells: Any) -> str:
    return f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in cells)} |"


def _is_number(key: str, rows: Sequence[Row]) -> bool:
    return all(
        isinstance(row.get(key, 0), (int, float)) and not isinstance(row.get(key), bool) for row in rows
    )


def _shown(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if key.startswith("share"):
            return f"{value:.1%}"
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
