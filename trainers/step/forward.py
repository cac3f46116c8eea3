"""Computation of a worker's loss: precision and micro-batches."""

import platform
from collections.abc import Callable

import torch
from torch import Tensor, nn

from data.protocols import Batch, Carry

Loss = Callable[
    [nn.Module, Batch, Carry], tuple[Tensor, Carry]
]  # model, batch, carry -> mean loss, next carry


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context of a forward pass: with bf16, torch's autocast; otherwise the weights' dtype."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def in_precision(loss: Loss, device: torch.device, precision: str) -> Loss:
    """``loss`` computed under ``autocast``; gradients have the parameters' dtype."""

    def wrapped(model: nn.Module, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        with autocast(device, precision):
            value, carry = loss(model, batch, carry)
        return value.float() if value.dtype == torch.bfloat16 else value, carry

    return wrapped if precision != "fp32" else loss


def require_bf16(device: torch.device) -> None:
    """Raise ``ValueError`` for a device without bf16."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ValueError(f"trainer.precision=bf16: {torch.cuda.get_device_name(device)} does not support it")


def warning_of_slow_bf16(device: torch.device) -> str:
    """A line if the CPU computes bf16 in software, which torch does without AVX-512; otherwise empty."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    if device.type != "cpu" or not is_x86 or torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return ""
    return (
        "warning: trainer.precision=bf16: this CPU has no AVX-512, so bf16 is computed in software; a step "
        "takes several times as long as with trainer.precision=fp32"
    )


def cut(batch: Batch, size: int | None) -> list[Batch]:
    """Micro-batches of ``size`` samples from a batch, a NamedTuple; with None the whole batch."""
    if size is None:
        return [batch]
    pieces = [field.split(size) if isinstance(field, Tensor) else None for field in batch]
    count = max(len(piece) for piece in pieces if piece is not None)
    columns = [
        [field] * count if piece is None else piece for field, piece in zip(batch, pieces, strict=True)
    ]
    return [type(batch)(*fields) for fields in zip(*columns, strict=True)]


def in_pieces(
    model: nn.Module,
    loss: Loss,
    pieces: list[Batch],
    carries: list[Carry],
    differentiate: Callable[[int, Tensor], None],
) -> tuple[Tensor, list[Carry]]:
    """The mean loss of micro-batches, and the state of ``loss`` after each; ``carries`` are those before.

    ``differentiate`` is called with the position of each micro-batch and its share of the mean.
    """
    shares, after = [], []
    for position, (piece, carry) in enumerate(zip(pieces, carries or [None] * len(pieces), strict=True)):
        value, carry = loss(model, piece, carry)
        share = value / len(pieces) if len(pieces) > 1 else value
        differentiate(position, share)
        shares.append(share.detach())
        after.append(carry)
    return sum(shares[1:], 0.0 + shares[0]), after


def carries_after(
    model: nn.Module, loss: Loss, batch: Batch, size: int | None, device: torch.device
) -> list[Carry]:
    """The states of ``loss`` after micro-batches of ``size`` samples; the model's buffers do not change."""
    pieces = cut(batch, size)
    model.eval()  # BatchNorm's statistics must not change
    own = [device] if device.type == "cuda" else []  # else this process would allocate memory on another GPU
    with torch.inference_mode(), torch.random.fork_rng(own):
        _, carry = loss(model, pieces[0], None)
    model.train()
    return [carry] * len(pieces)
