"""Facts of a training that a checkpoint holds beside its tensors; ``schemas.py`` has their bounds."""

from typing import NotRequired, TypedDict

from trainers.checkpoint.tree import Skeleton

SEARCH_COSTS = {  # of trials, by the metric of the whole run
    "comm/link_bytes_sent_total": "autolrs/search_link_bytes_sent_total",
    "comm/bytes_sent_total": "autolrs/search_bytes_sent_total",
    "compression/total_error": "autolrs/search_total_error",
}


class SearchFacts(TypedDict, total=False):
    """Of a search for learning rates: all of them, or none where nothing is searched for."""

    stage: int  # -1 before the first
    until: int  # the step that ends the stage
    rate: float | None
    forecast: float | None  # of the loss at the stage's end
    losses: list[float]  # of the stage's steps
    steps: int  # of all trials
    costs: dict[str, float]  # the values of ``SEARCH_COSTS``
    rates: list[float]  # tried in the stage that is about to begin
    forecasts: list[float | None]
    trial_steps: int
    stage_steps: int
    by_validation: bool


class Facts(TypedDict):
    """What JSON can hold of a training between two steps."""

    step: int
    epoch: float
    steps_in_ledger: int
    moved: int  # steps that a change of the number of workers has put between the ledger and the step
    skipped: int
    skipped_in_a_row: int
    last: dict[str, float]
    best: dict[str, float]
    search: SearchFacts
    optimizer: Skeleton
    optimizer_name: str | None  # None in an earlier version's
    average_period: int | None
    # known when it is saved
    seconds: NotRequired[float]
    num_workers: NotRequired[int]
    records: NotRequired[tuple[int, str]]  # bytes of metrics.jsonl, their checksum


class PartDescription(TypedDict):
    """Of one process's part of a checkpoint."""

    format: int
    run: str
    step: int
    searched: int
    process: int
    processes: int
    file: str
    bytes: int
    blake2b: str
    memories: dict[str, Skeleton]  # by worker
    facts: Facts | None  # the first process's
