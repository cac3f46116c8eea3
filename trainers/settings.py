"""Settings of the trainer."""

from dataclasses import dataclass

from compressors.core.checks import is_count, is_real, require, require_choice, require_flag

PRECISIONS = ("fp32", "bf16")
NONFINITE = ("stop", "skip")
WORKER_ORDER, ALL_REDUCE = REDUCTIONS = ("worker_order", "all_reduce")
MOST_STEPS = 10**9


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """Length, batch sizes, intervals and numerics of a training.

    In an epoch all workers together read as many samples as the training split has. Batches are always full:
    at the end of a worker's shard, a batch takes the remaining samples from the next pass over the shard.
    Raises ``ValueError`` for values out of range, and for settings that contradict each other.
    """

    epochs: float | None  # length of the run; ignored if steps is set
    steps: int | None  # length of the run in optimizer steps
    batch_size: int | None  # samples per worker and step; None for the worker's whole shard
    log_every: int  # steps between two records of metrics
    evaluate_every: float  # epochs between two evaluations; there is always one at the end
    evaluation_batch_size: int
    clip_norm: float | None  # largest L2 norm of a worker's gradient, before compression
    micro_batch_size: int | None = None  # samples per forward and backward pass; None for the whole batch
    precision: str = "fp32"  # of the forward pass; gradients and weights are fp32
    channels_last: bool = False  # convolutions' weights and activations with channels innermost
    average_reset_epochs: float | None = None  # epochs between restarts of the average; None: no average
    bucket_megabytes: float = 25  # size of a bucket of a dense step
    nonfinite: str = "stop"  # treatment of a step with a gradient that is not finite
    reduction: str = WORKER_ORDER  # order of additions in ``Communicator.all_reduce_mean``

    def __post_init__(self) -> None:
        if self.steps is None:
            valid = self.epochs is not None and is_real(self.epochs) and 0 < self.epochs <= 1e6
            require(valid, "trainer.epochs", "in (0, 1e6], unless trainer.steps is set", self.epochs)
        else:
            require(is_count(self.steps), "trainer.steps", "an integer >= 1", self.steps)
            require(self.steps <= MOST_STEPS, "trainer.steps", f"at most {MOST_STEPS}", self.steps)
        for name in ("log_every", "evaluation_batch_size"):
            value = getattr(self, name)
            require(is_count(value), f"trainer.{name}", "an integer >= 1", value)
        valid = self.batch_size is None or is_count(self.batch_size)
        require(valid, "trainer.batch_size", "an integer >= 1, or null for whole shards", self.batch_size)
        valid = is_real(self.evaluate_every) and self.evaluate_every > 0
        require(valid, "trainer.evaluate_every", "> 0", self.evaluate_every)
        for name in ("clip_norm", "average_reset_epochs"):
            value = getattr(self, name)
            require(value is None or (is_real(value) and value > 0), f"trainer.{name}", "> 0 or null", value)
        valid = is_real(self.bucket_megabytes) and 0 < self.bucket_megabytes <= 2**20
        require(valid, "trainer.bucket_megabytes", "in (0, 2^20]", self.bucket_megabytes)
        require_flag("trainer.channels_last", self.channels_last)
        require_choice("trainer.precision", PRECISIONS, self.precision)
        require_choice("trainer.reduction", REDUCTIONS, self.reduction)
        require_choice("trainer.nonfinite", NONFINITE, self.nonfinite)
        if self.micro_batch_size is not None:
            size = self.batch_size
            valid = is_count(self.micro_batch_size) and size is not None and size % self.micro_batch_size == 0
            rule = f"a divisor of trainer.batch_size ({self.batch_size}), or null"
            require(valid, "trainer.micro_batch_size", rule, self.micro_batch_size)

    @property
    def samples_at_once(self) -> int | None:
        """Samples in one forward pass of a worker; None for its whole shard."""
        return self.micro_batch_size or self.batch_size


def require_nodes(num_nodes: int, num_workers: int, num_processes: int) -> None:
    """Raise ``ValueError`` unless these workers and processes divide into ``num_nodes`` equal nodes."""
    if num_workers % num_nodes:
        raise ValueError(f"nodes must divide workers ({num_workers}), got {num_nodes}")
    if num_nodes % num_processes and num_processes % num_nodes:
        raise ValueError(f"processes must divide nodes ({num_nodes}) or be a multiple, got {num_processes}")
