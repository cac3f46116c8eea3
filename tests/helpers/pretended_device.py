"""A pretended GPU: tensors in CPU memory that torch treats as tensors on a GPU.

``pretended_operators`` registers the device. This module shows it to Python code as ``cuda``, so that the
project runs its code for GPUs. A registered device cannot be removed, so use it in a separate process.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import wraps
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import interpreter
import torch
from pretended_operators import (
    NAME,
    DeviceFault,
    Wait,
    changed,
    fault,
    install,
    is_pretended,
    note_wait,
    noting,
    to_host,
)
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["CUDA", "DeviceFault", "Wait", "disguised", "pretended_device"]
CUDA = torch.device("cuda", 0)


class _Disguise(TorchFunctionMode):
    """Shows the pretended device as ``cuda`` to Python code."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        if func == Tensor.device.__get__:
            return CUDA if is_pretended(args[0]) else func(*args)
        if func == Tensor.is_cuda.__get__:
            return is_pretended(args[0])
        if func in (Tensor.numpy, Tensor.__array__) and is_pretended(args[0]):
            raise fault("numpy() of a tensor on the device")
        if func is Tensor.__deepcopy__ and is_pretended(args[0]):  # torch's function requires an allocator
            return args[1].setdefault(id(args[0]), args[0].detach().clone())
        if func is Tensor.pin_memory:
            return args[0].clone()
        if func in (Tensor.register_hook, Tensor.register_post_accumulate_grad_hook):
            return func(args[0], disguised(args[1]))
        try:
            return func(*changed(args, _disguised), **{k: changed(v, _disguised) for k, v in kwargs.items()})
        except RuntimeError as error:  # torch checks devices before it calls the operator
            if func is Tensor.to and kwargs.get("non_blocking") and is_pretended(args[0]):
                raise fault("copy to the CPU that nobody waits for") from None  # torch asks for pinned memory
            if not re.search(r"(on|in) the same device", str(error)):
                raise
            raise fault(f"{getattr(func, '__name__', func)}: {error}") from None


def disguised(function: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that runs with the disguise; torch calls hooks of a backward pass without the active modes."""

    @wraps(function)
    def called(*args: Any) -> Any:
        with _Disguise():
            return function(*args)

    return called


def _disguised(value: Any) -> Any:
    is_cuda = isinstance(value, torch.device) and value.type == "cuda"
    is_named = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
    return torch.device(NAME, 0) if is_cuda or is_named else value


def _synchronize(device: object = None) -> None:
    note_wait("torch.cuda.synchronize")


def _state_of_generator(device: torch.device) -> Tensor:
    if device not in (0, CUDA):
        raise fault(f"the generator of {device}, another GPU than this process's")
    return torch.empty(0)


class _Event:
    """An event of a device that does all work at once."""

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing

    def record(self) -> None:
        self.seconds = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: "_Event") -> float:
        return 1e3 * (other.seconds - self.seconds)


_CUDA = {
    "Event": _Event,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 8,
    "set_device": lambda device: None,
    "current_device": lambda: 0,
    "synchronize": _synchronize,
    "device_of": lambda tensor: nullcontext(),
    "get_device_name": lambda device=None: NAME,
    "is_bf16_supported": lambda including_emulation=True: True,
    "manual_seed_all": lambda seed: None,
    "get_rng_state": _state_of_generator,
    "set_rng_state": lambda state, device: None,
}


_begin_future = torch.futures.Future.__init__


def _begin_future_here(future: torch.futures.Future, *, devices: object = None) -> None:
    """Create a future without devices; otherwise it would synchronise their streams."""
    _begin_future(future)


# Triton's interpreter computes directly on the memory of the device's tensors.
_INTERPRETER = {
    "_init_args_hst": lambda self, args, kwargs: (
        [to_host(own) for own in args],
        {name: to_host(own) for name, own in kwargs.items()},
    ),
    "_restore_args_dev": lambda self, *args: None,
}


@contextmanager
def pretended_device() -> Iterator[list[Wait]]:
    """Context manager that provides a ``cuda`` device; the host's waits are appended to the list."""
    install(SimpleNamespace(**_CUDA, _is_in_bad_fork=lambda: False))
    is_interpreted = find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") == "1"
    if is_interpreted:
        interpreter.install()  # before the device exists: with a GPU, it has no effect
    with ExitStack() as stack:
        waits = stack.enter_context(noting())
        for name, value in _CUDA.items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        stack.enter_context(patch.object(torch.futures.Future, "__init__", _begin_future_here))
        if is_interpreted:
            from triton.runtime.interpreter import GridExecutor

            for name, value in _INTERPRETER.items():
                stack.enter_context(patch.object(GridExecutor, name, value))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(_Disguise())
        yield waits
