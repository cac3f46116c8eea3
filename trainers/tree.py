"""Nested containers of tensors, taken apart into named tensors and a skeleton that JSON can hold."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from compressors.api import Shared

Skeleton = Any
_PLAIN = (bool, int, float, str, type(None))


def take_apart(tree: Any, prefix: str, out: dict[str, Tensor]) -> Skeleton:
    """Put the tensors of ``tree`` into ``out``, their names starting with ``prefix``; what is left of it.

    Trees are made of tuples, lists, dicts, tensors and plain values. Raises ``TypeError`` for
    anything else, and for a NamedTuple, whose kind would be lost.
    """
    if isinstance(tree, Tensor):
        out[prefix] = tree
        return {"tensor": prefix}
    if isinstance(tree, _PLAIN):
        return {"value": tree}
    if type(tree) in (tuple, list):
        parts = [take_apart(part, f"{prefix}/{i}", out) for i, part in enumerate(tree)]
        return {type(tree).__name__: parts}
    if type(tree) is dict:
        pairs = [[key, take_apart(part, f"{prefix}/{key}", out)] for key, part in tree.items()]
        return {"dict": pairs}
    raise TypeError(f"{prefix} must be tensors in tuples, lists and dicts to be saved, got {type(tree)}")


def put_together(skeleton: Skeleton, tensors: dict[str, Tensor]) -> Any:
    """The tree that ``take_apart`` took apart. Raises ``KeyError`` for a tensor that is missing."""
    ((kind, content),) = skeleton.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "dict":
        return {key: put_together(part, tensors) for key, part in content}
    parts = [put_together(part, tensors) for part in content]
    return tuple(parts) if kind == "tuple" else parts


def walk(tree: Any, prefix: str, *, shared: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of every leaf of a state whose kind stays: dicts, tuples and NamedTuples of tensors.

    Of those that are each worker's own or, ``shared``, of those that all hold alike.
    """
    yield from ((name, tensor) for name, tensor, alike in _leaves(tree, prefix, False) if alike == shared)


def _leaves(tree: Any, prefix: str, alike: bool) -> Iterator[tuple[str, Tensor, bool]]:
    if isinstance(tree, Tensor):
        yield prefix, tree, alike
    elif isinstance(tree, Shared):
        yield from _leaves(tree.state, prefix, True)
    elif isinstance(tree, dict):
        for key, part in tree.items():
            yield from _leaves(part, f"{prefix}/{key}", alike)
    elif isinstance(tree, tuple):
        names = getattr(tree, "_fields", range(len(tree)))
        for name, part in zip(names, tree, strict=True):
            yield from _leaves(part, f"{prefix}/{name}", alike)
    else:
        raise TypeError(f"{prefix} must be tensors in dicts and tuples, got {type(tree)}")
