"""Buckets of gradients from DistributedDataParallel, reduced in order while the backward pass goes on."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Bucket(NamedTuple):
    """Gradients that DDP communicates together."""

    gradients: dict[str, Tensor]  # views of ``buffer`` in the parameters' shapes, by parameter name
    buffer: Tensor
    is_last: bool  # of the step
    future: torch.futures.Future[Tensor]


@dataclass(eq=False)
class BucketQueue:
    """Calls ``reduce`` for every bucket, or with ``whole`` once for all buckets of a step.

    On a CPU ``thread`` calls it, by default one of its own, and an error is raised at the end of the backward
    pass. On a GPU it is called at once, because kernels and NCCL are asynchronous already. At the end of the
    backward pass ``deliver`` is called with the means of the step, by parameter name.
    """

    reduce: Callable[[list[Bucket]], None]
    deliver: Callable[[dict[str, Tensor]], None]
    device: torch.device
    _: KW_ONLY
    whole: bool
    thread: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        on_cpu = self.device.type == "cpu"
        self.thread = (self.thread or ThreadPoolExecutor(1, "compression")) if on_cpu else None
        self._waiting: list[Bucket] = []  # of this step
        self._means: dict[str, Tensor] = {}  # of this step, once its buckets are reduced
        self._failure: BaseException | None = None  # of this backward pass, in the thread

    def add(
        self, gradients: dict[str, Tensor], buffer: Tensor, *, is_last: bool
    ) -> torch.futures.Future[Tensor]:
        """The future of ``buffer`` after ``reduce``; ``gradients`` are its views, by parameter name."""
        devices: list[int | str | torch.device] = [] if self.thread is not None else [self.device]
        bucket = Bucket(gradients, buffer, is_last, torch.futures.Future(devices=devices))
        self._means |= gradients
        if self.thread is None:
            self._process(bucket)
        else:
            done = self.thread.submit(self._process, bucket)
        if is_last and not at_end_of_backward(self._end):
            self._means = {}  # torch's Join: this process has no more gradients of its own
            if self.thread is not None:
                done.result()
                self._raise_failure()
        return bucket.future

    @property
    def is_open(self) -> bool:
        """Whether a backward pass has begun and not ended, as after an error of the script in it."""
        return bool(self._means)

    def _process(self, bucket: Bucket) -> None:
        self._waiting.append(bucket)
        if self.whole and not bucket.is_last:
            return
        buckets, self._waiting = self._waiting, []
        try:
            if self._failure is None:
                self.reduce(buckets)
        except BaseException as error:
            if self.thread is None:
                raise
            self._failure = error  # torch's futures do not take exceptions from Python
        for own in buckets:
            own.future.set_result(own.buffer)

    def _end(self) -> None:
        means, self._means = self._means, {}
        self._raise_failure()
        self.deliver(means)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def at_end_of_backward(call: Callable[[], None]) -> bool:
    """Call it after DDP's own callback, which waits for the futures of all buckets.

    Returns whether there is a backward pass; in a process that has joined early there is none.
    """
    queue = torch.autograd.Variable._execution_engine.queue_callback
    try:
        queue(lambda: queue(call))  # DDP queues its callback after the last bucket
    except RuntimeError:
        return False
    return True


def reduced_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name, without those that DDP was told to ignore."""
    ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
    found: dict[nn.Parameter, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):  # of a tied one, any may be named
        # DDP looks up a parameter of the root module itself by a name that begins with a dot.
        if (name if "." in name else f".{name}") not in ignored:
            found.setdefault(parameter, name)
    return {name: parameter for parameter, name in found.items()}


def as_stored(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient in the parameter's shape, given DDP's view of its place in a bucket.

    DDP stores a gradient in the memory order of its parameter if this is dense, otherwise row by row. Its
    view is always that of a gradient that is stored row by row.
    """
    if parameter.is_contiguous() or not torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return gradient
    return gradient.as_strided(parameter.shape, parameter.stride())


def set_untouched(parameters: Mapping[str, Tensor], means: dict[str, Tensor], finds_unused: bool) -> None:
    """Set the gradients that DDP leaves as they were: of parameters that no worker used in a step.

    Part of their residual may have been sent, so the mean need not be zero. If it is, a missing gradient
    remains missing, and an optimizer does not update the parameter, as with DDP alone.
    """
    for name, mean in means.items():
        parameter = parameters[name]
        if parameter.grad is None:
            if mean.any():
                parameter.grad = torch.empty_like(parameter).copy_(mean)
        elif finds_unused and parameter.grad.data_ptr() != mean.data_ptr():
            parameter.grad.copy_(mean)
