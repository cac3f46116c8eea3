"""Facts of a training in a checkpoint, in addition to its tensors."""

from typing import NotRequired, TypedDict

from trainers.checkpoint.tree import Skeleton
from trainers.files.goals import LINK_BYTES, SEARCH_LINK_BYTES

SEARCH_COSTS = {  # metric of the run: metric with the same cost of the trials
    LINK_BYTES: SEARCH_LINK_BYTES,
    "comm/bytes_sent_total": "autolrs/search_bytes_sent_total",
    "compression/total_error": "autolrs/search_total_error",
}


class SearchFacts(TypedDict, total=False):
    """Facts of a search for learning rates; all of them, or none without a search."""

    stage: int  # -1 before the first
    until: int  # last step of the stage
    rate: float | None
    forecast: float | None  # predicted loss at the end of the stage
    losses: list[float]  # per step of the stage
    steps: int  # sum over all trials
    costs: dict[str, float]  # the values of ``SEARCH_COSTS``
    rates: list[float]  # tried for the next stage
    forecasts: list[float | None]
    trial_steps: int
    stage_steps: int
    by_validation: bool


class Facts(TypedDict):
    """The state of a training between two steps, except tensors, as JSON."""

    step: int
    epoch: float
    steps_in_ledger: int
    moved: int  # change of ``step`` by resuming with other steps per epoch; not in the ledger's steps
    skipped: int
    skipped_in_a_row: int
    last: dict[str, float]
    best: dict[str, float]
    search: SearchFacts
    optimizer: Skeleton
    optimizer_name: str
    average_period: int | None
    num_nodes: int | None  # with the same state in all workers of a node
    data: NotRequired[dict[str, int]]  # ``Training.numbers_of_data``; absent in older checkpoints
    # added when the state is saved
    seconds: NotRequired[float]
    records: NotRequired[tuple[int, str]]  # number of bytes of metrics.jsonl, and their checksum


class PartDescription(TypedDict):
    """Description of one process's part of a checkpoint."""

    format: int
    run: str
    step: int
    searched: int
    process: int
    processes: int
    file: str
    bytes: int
    blake2b: str
    memories: dict[str, Skeleton]  # ``WorkerState.carries`` by worker
    facts: Facts | None  # in the first process's part only
