"""Communication hook of DistributedDataParallel that runs a reducer, for your own script.

    state = CompressionState(reducer, ddp_model.module)
    ddp_model.register_comm_hook(state, compression_hook)

One worker per process, one segment per parameter; each bucket is compressed and communicated during the
backward pass. DDP regroups its buckets after the first step, so persistent state is keyed by parameter, never
by bucket. DDP's buckets have one dtype each, so a model may have several.
"""

import weakref

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.hooks.buckets import Bucket, BucketQueue, as_stored, set_untouched
from trainers.hooks.group import together
from trainers.hooks.state import CompressionState

__all__ = ["CompressionState", "compression_hook"]


def compression_hook(state: CompressionState, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Reduce ``bucket``: on a CPU in a thread during the backward pass, in bucket order.

    The future has the bucket's means, which replace its gradients.
    """
    if bucket.buffer().is_sparse:
        whose = ", ".join(state.names[parameter] for parameter in bucket.parameters())
        raise ValueError(f"gradients must be dense, got a sparse one of {whose}: use sparse=False")
    state.move_to(bucket.buffer().device)
    state.connect()
    times = state.times  # created before the thread uses it
    if bucket.is_last():
        times.hand_over_last()
    pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
    gradients = {_name_of(state, p): as_stored(p, g) for p, g in pairs if p.requires_grad}
    if state.queue is None:
        state.queue = _queue_of(state)
    return state.queue.add(gradients, bucket.buffer(), is_last=bucket.is_last())


def _name_of(state: CompressionState, parameter: Tensor) -> str:
    if parameter not in state.names:
        raise ValueError(
            "a parameter that was frozen when its CompressionState was made must have a new wrapper and "
            f"state to be trained, got {parameter.dtype} {list(parameter.shape)}"
        )
    return state.names[parameter]


def _queue_of(state: CompressionState) -> BucketQueue:
    own = weakref.proxy(state)  # without a cycle, a state is freed with its model
    return BucketQueue(
        lambda buckets: _reduce(own, buckets),
        lambda means: _deliver(own, means),
        state.layout.device,
        whole=state.preparation.needs_whole_gradient,
        thread=None if state.lane is None else state.lane.thread,
    )


def _reduce(state: CompressionState, buckets: list[Bucket]) -> None:
    whole = state.preparation.needs_whole_gradient
    with together(f"step {state.step + 1} of the compression"):
        if whole and not _prepare(state, buckets):
            return
        for own in buckets:
            state.reduce(own.gradients, last=own.is_last)
        if whole:
            state.preparation.end([own.buffer for own in buckets])


def _prepare(state: CompressionState, buckets: list[Bucket]) -> bool:
    """Prepare the whole gradient of a step; False if the step is skipped."""
    found = {name: gradient for own in buckets for name, gradient in own.gradients.items()}
    gradients = [found[name] for name in state.layout.names if name in found]
    if state.preparation.begin([own.buffer for own in buckets], gradients, state.workers):
        return True
    if not state.preparation.has_scaler:
        raise FloatingPointError(f"a gradient is not finite in step {state.step + 1}")
    state.skip_step()
    return False


def _deliver(state: CompressionState, means: dict[str, Tensor]) -> None:
    set_untouched(state.layout.parameters, means, state.finds_unused)
    if state.workers.rank == 0:
        state.updates.look(state.step, state.layout.parameters.values())
