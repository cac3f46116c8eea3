"""Terminal output of a run: its first lines and the table at its end."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from compressors.core.fields import KINDS
from compressors.kernels.choice import describe
from trainers.files.goals import SEARCH_LINK_BYTES
from trainers.launch.jobs import reading
from trainers.local import LocalSteps
from trainers.names import RESULTS
from trainers.network_model.break_even import NAME as BREAK_EVEN
from trainers.network_model.break_even import in_words
from trainers.schedules.autolrs import AutoLRS
from trainers.step.forward import warning_of_slow_bf16
from trainers.step.local import bytes_of_a_worker

if TYPE_CHECKING:
    from trainers.checkpoint.resume import Start
    from trainers.training import Training

Form = str | Callable[[Any], str]  # format of a number
_ROWS: tuple[tuple[str, str, Form], ...] = (
    ("validation/accuracy", "validation accuracy", "{:.2%}"),
    ("validation/perplexity", "validation perplexity", "{:.2f}"),
    ("validation/bits_per_byte", "validation bits per byte", "{:.4f}"),
    ("test/accuracy", "test accuracy", "{:.2%}"),
    ("test/perplexity", "test perplexity", "{:.2f}"),
    ("test/bits_per_byte", "test bits per byte", "{:.4f}"),
    ("test/hit_rate_at_10", "test hit rate at 10", "{:.2%}"),
    ("test/ndcg_at_10", "test NDCG at 10", "{:.4f}"),
    ("validation/loss", "validation loss", "{:.4f}"),
    ("test/loss", "test loss", "{:.4f}"),
    ("convex/suboptimality", "f(x) - f*", "{:.6g}"),
    ("convex/distance_squared", "squared distance to x*", "{:.6g}"),
    ("compression/total_error", "total error (squared L2, summed over steps)", "{:.6g}"),
    ("compression/threshold", "lambda", "{:.4g}"),
    ("compression/density_mean", "average density", "{:.3%}"),
    ("comm/link_bytes_sent_total", "bytes that left a worker", "{:,.0f}"),
    ("comm/link_bytes_received_total", "bytes that reached a worker", "{:,.0f}"),
    ("comm/inside_bytes_sent_total", "bytes that left a worker inside its node", "{:,.0f}"),
    ("comm/compression_ratio", "compression ratio, on the link", "{:.4g}"),
    ("comm/bytes_sent_total", "bytes a worker handed to collectives", "{:,.0f}"),
    ("comm/values_bytes_total", "  values", "{:,.0f}"),
    ("comm/indices_bytes_total", "  indices", "{:,.0f}"),
    ("comm/padding_bytes_total", "  padding", "{:,.0f}"),
    ("comm/metadata_bytes_total", "  metadata", "{:,.0f}"),
    ("comm/bits_per_parameter", "bits handed over per step and parameter", "{:.4g}"),
    (BREAK_EVEN, "faster than dense training, on a link", lambda speed: in_words([speed])),
    ("step", "steps", "{:,}"),
    ("autolrs/search_steps", "steps of trials, beside them", "{:,}"),
    (SEARCH_LINK_BYTES, "bytes that left a worker in trials, beside them", "{:,.0f}"),
    ("wall_seconds", "wall time in seconds", "{:.1f}"),
)

_KIND = re.compile(r"comm/(\w+)_bytes_total")


def print_summary(summary: Mapping[str, object]) -> None:
    """Print the quality, the total error and the bytes of a finished run."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    for name, label, form in _rows(summary):
        if name in summary:
            table.add_row(label, form(summary[name]) if callable(form) else form.format(summary[name]))
    Console(width=100).print(table)


def next_commands(folder: Path, output: str, summary: Mapping[str, object]) -> str:
    """A line with the commands that read the run in ``folder``, and all runs in ``output``."""
    line = reading(output)
    if BREAK_EVEN not in summary:
        return line
    network = f"{RESULTS} breakeven {shlex.quote(str(folder))} --bandwidth 1gbit 10gbit"
    return f"{line}; {network} (steps over a network)"


def _rows(summary: Mapping[str, object]) -> Iterator[tuple[str, str, Form]]:
    """The rows with known values; bytes of a method's own kinds come after the usual kinds."""
    for row in _ROWS:
        yield row
        if row[0] == f"comm/{KINDS[-1]}_bytes_total":
            kinds = (match[1] for name in summary if (match := _KIND.fullmatch(name)))
            for kind in sorted(set(kinds) - {*KINDS, "entropy_bound"}):
                yield f"comm/{kind}_bytes_total", f"  {kind}", "{:,.0f}"


def _local_steps(local: LocalSteps, training: "Training") -> str:
    """A line on the length of a step and on the memory of the workers."""
    num_bytes = bytes_of_a_worker(training.optimizer, training.layout)
    held = num_bytes * len(training.communicator.local_workers)
    fragment = f" and one of {local.fragments} fragments" if local.fragments > 1 else ""
    whole = training.num_steps * training.epochs_per_step
    asked = None if training.settings.steps is not None else training.settings.epochs
    longer = (
        f"; trainer.epochs={asked:g} is rounded up to {whole:.3g} epochs, {training.num_steps:,} steps"
        if asked
        else ""
    )
    return (
        f"a step is {local.steps_at_once} local steps{fragment}; the weights and moments of the workers in "
        f"a process take {held / 2**20:,.0f} MiB{longer if asked and whole > 1.01 * asked else ''}"
    )


def announce(training: "Training", path: Path, start: "Start") -> None:
    """Print the size of the run, its device and its start."""
    communicator, layout = training.communicator, training.layout
    nodes = f"{training.nodes.across.size} nodes and " if training.nodes is not None else ""
    lines = [
        f"{communicator.size} workers in {nodes}{communicator.world_size} process(es) on {layout.device}, "
        f"{layout.num_parameters:,} parameters, {training.num_steps:,} steps, scope {layout.scope}"
    ]
    for part, facts in training.facts().items():
        lines.append(f"{part}: {', '.join(f'{name} {value}' for name, value in facts.items())}")
    lines += [f"kernels: {describe(layout.device)}", f"{training.reducer!r} -> {path}"]
    if training.settings.precision == "bf16" and (slow := warning_of_slow_bf16(layout.device)):
        lines.append(slow)
    if training.local is not None:
        lines.append(_local_steps(training.local, training))
    if not isinstance(training.schedule, AutoLRS):  # AutoLRS has no base rate
        base_rate = max(group["lr"] for group in training.outer_optimizer().param_groups)
        lines += [line for line in [training.reducer.note(base_rate)] if line]
    lines += start.messages
    if start.checkpoint is not None:
        lines.append(f"continuing after step {start.checkpoint.step:,} from {start.checkpoint.path}")
    print("\n".join(lines), flush=True)  # one write, so that a reader never gets a part of the lines
