"""Operators of a pretended device, computed on the CPU.

Its tensors are on torch's PrivateUse1 device, in CPU memory. Dispatch, autograd and composite operators treat
them as those of another device. Calls that a GPU would refuse are refused, with the operator and the caller's
line. Calls that make the host wait are recorded. A registered device cannot be removed from a process.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

ROOT = Path(__file__).resolve().parents[2]
NAME = "pretended"
PLAYERS = ("pretended_device.py", "pretended_operators.py", "pretended_nccl.py")  # not reported as callers
_CPU, _EXTENSION = 1, 12  # DLPack's device types; torch reads the second one as PrivateUse1
_KEY = torch._C.DispatchKey.PrivateUse1


class DeviceFault(RuntimeError):
    """A call that a GPU would refuse, or a read of data that may not have arrived."""


class Wait(NamedTuple):
    """A call that makes the host wait for the device."""

    what: str  # the operator, or the direction of a copy
    line: str  # the innermost line of the project
    frames: tuple[str, ...]  # file:function of the project, innermost first


_listening: list[list[Wait]] = []
_library: list[torch.library.Library] = []
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _moved(tensor: Tensor, kind: int) -> Tensor:
    """A tensor on another device over the same memory."""
    capsule = torch._C._to_dlpack(tensor.detach())
    device = ctypes.cast(_pointer(capsule, b"dltensor"), ctypes.POINTER(ctypes.c_int32))
    device[2], device[3] = kind, 0  # after the pointer to the entries
    return torch._C._from_dlpack(capsule)


def host_view(tensor: Tensor) -> Tensor:
    """A CPU tensor over the memory of a pretended tensor, for the simulation of the device."""
    return _moved(tensor, _CPU)


def is_pretended(value: object) -> bool:
    return isinstance(value, Tensor) and torch._C._dispatch_keys(value).has(_KEY)


def _frames() -> tuple[str, tuple[str, ...]]:
    """The innermost line of the project, and its running functions, innermost first."""
    frame, line, found = sys._getframe(1), "", []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT) and path.name not in PLAYERS and ".venv" not in path.parts:
            place = path.relative_to(ROOT)
            line = line or f"{place}:{frame.f_lineno}"
            found.append(f"{place}:{frame.f_code.co_name}")
        frame = frame.f_back
    return line, tuple(found)


def note_wait(what: str) -> None:
    for waits in _listening:
        waits.append(Wait(what, *_frames()))


@contextmanager
def noting() -> Iterator[list[Wait]]:
    """Context manager that records the host's waits in the list."""
    waits: list[Wait] = []
    _listening.append(waits)
    try:
        yield waits
    finally:
        _listening.pop()


def fault(what: str) -> DeviceFault:
    line, _ = _frames()
    return DeviceFault(f"{what}, at {line}")


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [own for part in value for own in _tensors(part)] if isinstance(value, (list, tuple)) else []


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if type(value) in (list, tuple):  # subclasses such as torch.Size contain no tensors
        return type(value)(changed(part, change) for part in value)
    return change(value)


def to_host(value: Any) -> Any:
    if is_pretended(value):
        return host_view(value)
    is_own = isinstance(value, torch.device) and value.type == NAME
    return torch.device("cpu") if is_own else value


def _to_device(value: Any) -> Any:
    return _moved(value, _EXTENSION) if isinstance(value, Tensor) else value


# Operators that return a size or a number to the host.
_TELLING = {
    "aten::_local_scalar_dense",
    "aten::_unique2",
    "aten::bincount",
    "aten::equal",
    "aten::histc",
    "aten::masked_select",
    "aten::nonzero",
    "aten::unique_consecutive",
    "aten::unique_dim",
}
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


def _check(op: Any, given: dict[str, Any]) -> None:
    """Refuse CPU tensors together with the device's, except scalars and indices."""
    name, tensors = op._schema.name, _tensors(list(given.values()))
    if name in _INDEXING:
        _check_indices(name, given)
        tensors = [own for key, value in given.items() if key != "indices" for own in _tensors(value)]
    if not any(map(is_pretended, tensors)):
        return
    for key, value in given.items():
        if key == "indices" and name in _INDEXING:
            continue
        for own in _tensors(value):
            if not is_pretended(own) and (own.dim() or isinstance(value, (list, tuple))):
                shape = list(own.shape)
                raise fault(f"{op}: {key} {shape} is on the CPU and another argument on the device")
    generator = given.get("generator")
    if generator is not None and generator.device.type == "cpu":
        raise fault(f"{op}: a generator of the CPU for a tensor of the device")


def _check_indices(name: str, given: dict[str, Any]) -> None:
    # aten::index calls aten::nonzero first, which records a wait. Filling with one number needs no positions
    looks = name != "aten::index" and given["values"].numel() > 1
    for own in _tensors([index for index in given["indices"] if index is not None]):
        if not is_pretended(given["self"]) and is_pretended(own):
            raise fault(f"{name}: indices on the device of a tensor on the CPU")
        if own.dtype in (torch.bool, torch.uint8) and looks:
            note_wait(f"{name}: a mask")


def _with_tensors(schema: Any, args: tuple) -> tuple:
    """The arguments; numbers that torch has unwrapped from tensors are tensors again."""
    others = [value for value in args if isinstance(value, Tensor)]
    numbers = [
        isinstance(value, (bool, int, float, complex)) and str(own.type) == "Tensor"
        for own, value in zip(schema.arguments, args, strict=False)
    ]
    return tuple(
        torch.tensor(value, dtype=torch.result_type(to_host(others[0]), value)) if is_number else value
        for is_number, value in zip(numbers, args, strict=True)
    )


def _compute(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute the operator on the CPU; returns the given tensors if the operator writes to them."""
    schema = op._schema
    args = _with_tensors(schema, args)
    given = {own.name: value for own, value in zip(schema.arguments, args, strict=False)} | kwargs
    _check(op, given)
    if schema.name in _TELLING or (
        schema.name == "aten::repeat_interleave" and given.get("output_size", 0) is None
    ):
        note_wait(schema.name)
    written = [own for own in schema.arguments if own.alias_info is not None and own.alias_info.is_write]
    fresh = {own.name for own in written if own.is_out and given[own.name].numel() == 0}
    found = op(
        *changed(args, to_host),
        **{
            key: torch.empty(0, dtype=value.dtype) if key in fresh else changed(value, to_host)
            for key, value in kwargs.items()
        },
    )
    if not written:
        return changed(found, _to_device)
    outs = [given[own.name] for own in written]
    for own, new in zip(written, found if len(schema.returns) > 1 else [found], strict=True):
        if own.name in fresh:
            _set(given[own.name], _to_device(new))
    return outs[0] if len(schema.returns) == 1 else tuple(outs)


def _on_host_kernel(op: Any) -> Callable[..., Any]:
    """The CPU's kernel, for operators that create views and do not read memory."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return lambda *args, **kwargs: op.redispatch(keys, *args, **kwargs)


def _set(target: Tensor, source: Tensor) -> None:
    """Make ``target`` equal to ``source``, including its size."""
    torch.ops.aten.set_.source_Tensor(target, source)


def _resize(target: Tensor, size: list[int], memory_format: Any = None) -> Tensor:
    kept, new = host_view(target).flatten(), torch.empty(size, dtype=target.dtype)
    new.view(-1)[: len(kept)] = kept[: new.numel()]
    _set(target, _to_device(new))
    return target


def _copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    leaves, enters = is_pretended(source), is_pretended(target)
    shape = list(source.shape)
    if leaves and not enters:
        if non_blocking:
            raise fault(f"copy of {shape} to the CPU that nobody waits for")
        note_wait("copy to the CPU")
    elif enters and not leaves and not non_blocking and source.numel():
        note_wait("copy to the device")
    to_host(target).copy_(to_host(source))
    return target


def _scalar(tensor: Tensor) -> Any:
    note_wait("aten::_local_scalar_dense")
    return host_view(tensor).item()


def _lstm_cell(
    inputs: Tensor, hidden: Tensor, cx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """``_thnn_fused_lstm_cell``, which torch has only for GPUs; also returns the gates."""
    gates = inputs + hidden
    if input_bias is not None and hidden_bias is not None:
        gates = gates + input_bias + hidden_bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates before activation, of ``cx`` and of the bias."""
    i, f, g, o = gates.chunk(4, 1)
    grad_hy = torch.zeros_like(cy) if grad_hy is None else grad_hy
    through = grad_hy * o * (1 - cy.tanh().square())
    grad_cy = through if grad_cy is None else grad_cy + through
    parts = [
        grad_cy * g * i * (1 - i),
        grad_cy * cx * f * (1 - f),
        grad_cy * i * (1 - g.square()),
        grad_hy * cy.tanh() * o * (1 - o),
    ]
    of_gates = torch.cat(parts, 1)
    return of_gates, grad_cy * f, of_gates.sum(0)


def install(module: object) -> None:
    """Register the device for the rest of the process; ``module`` corresponds to torch.cuda."""
    if _library:
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=module)
    everything, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _library.extend((everything, aten))
    everything.fallback(_compute, "PrivateUse1")
    ops = torch.ops.aten
    views = (ops.as_strided, ops.view, ops.unfold, ops._reshape_alias, ops.view_as_real, ops.view_as_complex)
    for op in (*(op.default for op in views), ops.set_.source_Tensor, ops.set_.source_Storage_storage_offset):
        aten.impl(op, _on_host_kernel(op), "PrivateUse1")
    aten.impl("_thnn_fused_lstm_cell", _lstm_cell, "PrivateUse1")
    aten.impl("_thnn_fused_lstm_cell_backward_impl", _lstm_cell_backward, "PrivateUse1")
    aten.impl("copy_", _copy, "PrivateUse1")
    aten.impl("resize_", _resize, "PrivateUse1")
    aten.impl("_local_scalar_dense", _scalar, "PrivateUse1")
    # Otherwise torch looks for the device's own convolution
    for name in ("convolution", "convolution_backward"):
        op = getattr(torch.ops.aten, name).default
        aten.impl(op, lambda *args, op=op, **kwargs: _compute(op, *args, **kwargs), "PrivateUse1")
