"""Decomposition of nested containers into named tensors and a JSON skeleton."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor

from compressors.api import Shared

Tree = Any  # tensors and plain values in tuples, lists and dicts of any depth
Skeleton = dict[str, Any]  # an object with one field; the field's name is the kind of the value
Leaf = TypeVar("Leaf")
_PLAIN = (bool, int, float, str, type(None))


def described(tensor: Tensor) -> str:
    """Dtype and shape, such as float32 [2, 3]."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def take_apart(tree: object, prefix: str, out: dict[str, Tensor]) -> Skeleton:
    """Put the tensors of ``tree`` into ``out``, with names that begin with ``prefix``; returns the skeleton.

    A tree consists of tuples, lists, dicts, tensors and plain values. Raises ``TypeError`` for anything
    else, and for a NamedTuple, whose type would be lost.
    """
    if isinstance(tree, Tensor):
        out[prefix] = tree
        return {"tensor": prefix}
    if isinstance(tree, _PLAIN):
        return {"value": tree}
    if type(tree) is tuple or type(tree) is list:
        parts = [take_apart(part, f"{prefix}/{i}", out) for i, part in enumerate(tree)]
        return {type(tree).__name__: parts}
    if type(tree) is dict:
        pairs = [[key, take_apart(part, f"{prefix}/{key}", out)] for key, part in tree.items()]
        return {"dict": pairs}
    raise TypeError(f"{prefix} must be tensors in tuples, lists and dicts to be saved, got {type(tree)}")


def tensors_of(skeleton: Skeleton) -> set[str]:
    """The names of the tensors in a skeleton."""
    ((kind, content),) = skeleton.items()
    if kind == "tensor":
        return {content}
    if kind == "value":
        return set()
    parts = [part for _, part in content] if kind == "dict" else content
    return set[str]().union(*map(tensors_of, parts))


def put_together(skeleton: Skeleton, tensors: Mapping[str, Leaf]) -> Tree:
    """The inverse of ``take_apart``. Raises ``KeyError`` for a missing tensor."""
    ((kind, content),) = skeleton.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "dict":
        return {key: put_together(part, tensors) for key, part in content}
    parts = [put_together(part, tensors) for part in content]
    return tuple(parts) if kind == "tuple" else parts


def walk(tree: object, prefix: str, *, shared: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of every leaf of a state of dicts, tuples and NamedTuples of tensors.

    Yields the tensors of each worker or, with ``shared``, those that are equal for all workers. Raises
    ``TypeError`` for any other value.
    """
    yield from ((name, tensor) for name, tensor, alike in _leaves(tree, prefix, False) if alike == shared)


def _leaves(tree: object, prefix: str, alike: bool) -> Iterator[tuple[str, Tensor, bool]]:
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
