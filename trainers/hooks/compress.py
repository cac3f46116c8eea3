"""Compression of a DistributedDataParallel model, in one call."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from compressors.api import Codec, Reduced, Reducer, Wrapper
from compressors.build import build_reducer
from compressors.core.density import Constant
from compressors.feedback import EF21SGDM, MomentumCorrection, StoredResidual
from compressors.named import feedback as feedback_named
from compressors.named import method
from trainers.hooks.buckets import reduced_parameters
from trainers.hooks.ddp import CompressionState, compression_hook
from trainers.hooks.preparation import Scaler
from trainers.hooks.saved_state import number_of
from trainers.hooks.script_log import LOG, warn_without_loops
from trainers.hooks.within import Within

Feedback = str | Callable[[Reducer], Reducer] | None


def compress(
    ddp_model: DistributedDataParallel,
    compressor: str | Codec | Reducer,
    *,
    feedback: Feedback = None,
    seed: int = 0,
    learning_rate: float | None = None,
    scaler: Scaler | None = None,
    clip_norm: float | None = None,
    inspect: Callable[[Reduced], None] | None = None,
    memory: str = "device",
    within: Within = None,
    **settings: Any,
) -> CompressionState:
    """Register a hook that compresses the gradients of ``ddp_model``; returns the hook's state.

    ``compressor`` is the name of a method, with its ``settings``, or a codec or reducer. ``feedback`` is the
    name of a feedback, a function that wraps a reducer, or None for the one of the method's config; a reducer
    with feedback keeps its own. Each parameter is compressed separately. Residuals are kept between steps by
    the ``memory``: on the ``"device"``, in ``"cpu"`` memory, or rounded to ``"bf16"``
    (``compressors.feedback.StoredResidual``). The density of a threshold (``hard_threshold``) sets lambda by
    the paper's rule; the density that is sent follows from the gradients, and can be far from it: after 100
    steps, a line says so if it is more than 3 times as much. The other arguments, also ``within`` for
    compression between nodes alone, are those of ``CompressionState``. Raises ``ValueError``, one line, for
    unsuitable arguments, and for other ones in other processes.
    """
    kind = type(ddp_model)
    if not issubclass(kind, DistributedDataParallel):
        raise ValueError(
            f"compress needs a DistributedDataParallel model, got {kind.__name__}: " + _advice(ddp_model)
        )
    if ddp_model._comm_hooks:
        hook, _ = ddp_model._comm_hooks[0]
        raise ValueError(
            "compress needs a DistributedDataParallel model without a communication hook, got one with "
            f"{getattr(hook, '__qualname__', hook)}: a wrapper takes one hook, once"
        )
    if getattr(ddp_model, "skip_all_reduce_unused_params", False):  # torch 2.9 may lack it
        raise ValueError(
            "compress needs a DistributedDataParallel model without skip_all_reduce_unused_params: a step "
            "ends with the last bucket, which DDP then may leave out"
        )
    module = ddp_model.module
    size = sum(p.numel() for p in reduced_parameters(module).values() if p.requires_grad)
    reducer, density = chosen_reducer(compressor, settings, feedback, size, memory)
    state = CompressionState(
        reducer,
        module,
        process_group=ddp_model.process_group,
        seed=seed,
        learning_rate=learning_rate,
        inspect=inspect,
        scaler=scaler,
        clip_norm=clip_norm,
        within=within,
        finds_unused=ddp_model.find_unused_parameters or ddp_model.static_graph,
    )
    state.density = density
    state.connect()
    begin_together(state, reducer)
    say_momentum(state, reducer)
    ddp_model.register_comm_hook(state, compression_hook)
    return state


def chosen_reducer(
    compressor: str | Codec | Reducer,
    settings: Mapping[str, Any],
    feedback: Feedback,
    num_parameters: int,
    memory: str = "device",
) -> tuple[Reducer, float | None]:
    """The reducer of these arguments of ``compress``, and the constant density that was asked for, if any.

    Raises ``ValueError``, one line, for unsuitable arguments.
    """
    if isinstance(compressor, str):
        chosen = method(compressor, **settings)
    elif settings:
        raise ValueError(
            f"{min(settings)} has no effect: {type(compressor).__name__} has its settings already"
        )
    elif isinstance(compressor, (Codec, Reducer)):
        chosen = compressor
    else:
        raise ValueError(f"compressor must be a name, a codec or a reducer, got {type(compressor).__name__}")
    if isinstance(chosen, Wrapper):  # a residual inside of a residual would be added twice
        if feedback not in (None, "none"):
            raise ValueError(f"feedback has no effect: {type(chosen).__name__} is feedback already")
        feedback = "none"
    if feedback is None:
        feedback = chosen.usual_feedback
    around: Any = feedback_named(feedback) if isinstance(feedback, str) else feedback
    if not callable(around):
        got = type(around).__name__
        raise ValueError(f"feedback must be a name or a function that wraps a reducer, got {got}")
    is_constant = isinstance(getattr(chosen, "schedule", Constant()), Constant)
    density = getattr(chosen, "density", None) if is_constant else None
    reducer = build_reducer(chosen, num_parameters, around)
    return reducer if memory == "device" else StoredResidual(reducer, memory=memory), density


def begin_together(state: CompressionState, reducer: Reducer) -> None:
    """Compare all processes, which call it together; warn in the first one if there are no compiled loops.

    Raises ``ValueError`` for another method, settings, seed or parameters in another process: the means of
    seeded positions would be those of different entries.
    """
    told = repr((reducer, state.seed, [(name, p.shape) for name, p in state.layout.parameters.items()]))
    own = number_of(re.sub(r" at 0x[0-9a-f]+", "", told))  # of functions, which each process has elsewhere
    if len(state.workers.collect(torch.tensor([own])).unique()) > 1:
        raise ValueError(
            "compression needs the same method, settings, seed and parameters in all processes, got others: "
            f"process {state.workers.rank} has {reducer!r}, seed {state.seed}"
        )
    if state.workers.rank == 0:
        warn_without_loops(state.layout.device)


def say_momentum(state: CompressionState, reducer: Reducer) -> None:
    """Say that the optimizer, which the hook does not see, must have no momentum if feedback has one."""
    for layer in reducer.layers() if state.workers.rank == 0 else ():
        if isinstance(layer, (MomentumCorrection, EF21SGDM)) and layer.momentum:
            kind = type(layer).__name__
            LOG.warning(
                f"total_error: {kind} has the momentum {layer.momentum:g} itself: the optimizer "
                "must be SGD with momentum 0"
            )


def _advice(model: object) -> str:
    if isinstance(model, FSDPModule):
        return "compress_fsdp is for FSDP2"
    if isinstance(model, FullyShardedDataParallel):
        return "compress_fsdp is for fully_shard"
    is_compiled = isinstance(getattr(model, "_orig_mod", None), DistributedDataParallel)
    return "compress it before torch.compile" if is_compiled else "wrap it first"
