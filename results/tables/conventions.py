"""Traffic of one run by the conventions of publications.

A table per run has for each convention the count over the whole training, the count of dense training,
and their ratio, dense divided by compressed, which a publication with this convention would print. Ratios of
two conventions are not comparable. docs/ledger.md has the sources.
"""

import math
from typing import NamedTuple

from results.compare.measures import HANDED_BYTES, LINK_BYTES, num_parameters, require_several_workers
from results.escaping import code, in_markdown, markdown_table
from results.read.naming import name_of
from results.read.run import Run

RECEIVED_BYTES = "comm/link_bytes_received_total"
VALUES, INDICES = "comm/values_bytes_total", "comm/indices_bytes_total"  # parts of the bytes handed over
NEEDED = (
    LINK_BYTES,
    RECEIVED_BYTES,
    HANDED_BYTES,
    VALUES,
    "comm/compression_ratio",
    "compression/density_mean",
    "layers",
)
VALUE_BYTES, INDEX_BYTES, WIDE_INDEX_BYTES = 4, 4, 8  # as publications count them, for every dtype


class Count(NamedTuple):
    """A run's count by one convention, over the whole training; mean over workers unless its name differs."""

    convention: str
    source: str
    unit: str
    amount: float | None  # None if it has no meaning for the method, or was not recorded
    dense: float

    @property
    def ratio(self) -> float | None:
        return self.dense / self.amount if self.amount else None


def counts_of(run: Run) -> list[Count]:
    """The counts by every convention. Raises ``ValueError`` for a run of one worker, which sends nothing."""
    require_several_workers([run])
    summary, n = run.summary, run.senders
    handed, left, reached = (summary[name] for name in (HANDED_BYTES, LINK_BYTES, RECEIVED_BYTES))
    dense_link = summary["comm/compression_ratio"] * left
    ring = 2 * (n - 1) / n  # bytes that leave a worker, per byte handed to an all-reduce
    dense = dense_link / ring
    steps = summary["step"] - summary.get("train/steps_skipped", 0)
    fragments = (run.config.get("local") or {}).get("fragments", 1)  # each is in every P-th step
    dense_elements = num_parameters(run) * steps / fragments
    elements = summary["compression/density_mean"] * dense_elements
    bits = summary.get("comm/paper_bits_total")
    exact = elements if bits is not None else None  # None unless one fp32 value is sent per element
    most = summary.get("comm/largest_sent_total")
    is_averaged = _is_averaged(run, elements)
    index_bytes = (0, 0) if is_averaged else (INDEX_BYTES, WIDE_INDEX_BYTES)  # an all-reduce has none
    back = handed if is_averaged else min(reached, dense)
    return [
        Count("left a worker's link", "this project's tables", "bytes", left, dense_link),
        Count("reached a worker's link", "this project", "bytes", reached, dense_link),
        Count("handed to collectives", "PowerSGD's code; DeepSpeed's message size", "bytes", handed, dense),
        Count("bus bytes of a ring", "DeepSpeed's and NCCL's bus bandwidth", "bytes", left, dense_link),
        Count("parameter server, up", "federated learning", "bytes", handed, dense),
        Count("parameter server, down", "federated learning", "bytes", back, dense),
        Count(
            "32 bits a value sent, indices free",
            "Sahu et al. 2021, convex part",
            "bits",
            bits,
            8 * VALUE_BYTES * dense_elements,
        ),
        Count(
            "64 bits an element, of the worker that sends most",
            "Sahu et al. 2021, networks",
            "bits",
            _times(most if exact is not None else None, 8 * (VALUE_BYTES + index_bytes[0])),
            8 * VALUE_BYTES * dense_elements,
        ),
        Count(
            "96 bits an element",
            "Sahu et al. 2021, Top-k of the entire model",
            "bits",
            _times(exact, 8 * (VALUE_BYTES + index_bytes[1])),
            8 * VALUE_BYTES * dense_elements,
        ),
        Count("elements sent", "ACCORDION", "elements", elements, dense_elements),
        Count(
            "gathered from all workers, a dense all-reduce twice",
            "SIDCo",
            "bytes",
            _times(exact, 2 * VALUE_BYTES if is_averaged else n * (VALUE_BYTES + INDEX_BYTES)),
            2 * VALUE_BYTES * dense_elements,
        ),
        Count("numbers uploaded, indices free", "FL_PyTorch", "fp32 numbers", exact, dense_elements),
    ]


def _is_averaged(run: Run, elements: float) -> bool:
    """Whether an all-reduce averaged the payloads of ``run``, in which a worker sent ``elements``.

    An all-reduce moves fewer bytes than a gather. With 2 workers it moves as many, and the bytes of indices
    decide: in a gather every worker sends an index for each of its elements. For an all-reduce no index is
    sent, or each index is sent by one worker alone, such as the leader of ``clt_k``.
    """
    summary, n = run.summary, run.senders
    handed = summary[HANDED_BYTES]
    if summary[LINK_BYTES] < (1 - 1e-9) * (n - 1) * handed or summary[VALUES] == handed:
        return True
    wire = run.config.get("wire") or {}
    is_encoded = (wire.get("indices", "plain"), wire.get("values", "fp32")) != ("plain", "fp32")
    has_own_blocks = run.config["compressor"].get("shared_coordinates") is False  # one index for each block
    if n > 2 or is_encoded or has_own_blocks or not summary[VALUES]:
        return False
    indices = summary.get(INDICES, 0.0)
    return indices == 0 or math.isclose(n * indices, INDEX_BYTES * elements, rel_tol=1e-6)


def table_of(run: Run) -> str:
    """Markdown: a heading and a row per convention."""
    rows = [
        [
            in_markdown(count.convention),
            in_markdown(count.source),
            "-" if count.amount is None else f"{count.amount:,.0f}",
            f"{count.dense:,.0f}",
            count.unit,
            "-" if count.ratio is None else f"{count.ratio:.4g}",
        ]
        for count in counts_of(run)
    ]
    head = ["what is counted", "as in", "this run", "dense", "unit", "dense over this run"]
    rule = ["---", "---", "---:", "---:", "---", "---:"]
    facts = (
        f"{run.config['workers']} workers, {num_parameters(run):,} parameters, {run.summary['step']:,} steps"
    )
    title = f"## {in_markdown(run.subject)}, {in_markdown(name_of(run))}, seed {run.seed}"
    return f"{title}\n\n{facts}; {code(run.path.as_posix())}\n\n{markdown_table(head, rows, rule)}"


def _times(number: float | None, factor: float) -> float | None:
    return None if number is None else factor * number
