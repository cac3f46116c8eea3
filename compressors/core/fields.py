"""Declarations of payload fields: the kind of their bytes, and the elements per entry."""

import re
from abc import ABCMeta
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, get_type_hints

from torch import Tensor

VALUES, INDICES, PADDING, METADATA = "values", "indices", "padding", "metadata"
KINDS = (VALUES, INDICES, PADDING, METADATA)  # in every ledger
_NAME = re.compile(r"(?!entropy_bound$)[a-z][a-z0-9_]*")  # comm/entropy_bound_bytes_total is another metric
_known: dict[type[Any], "Declared"] = {}


class Field(NamedTuple):
    """Declaration of a payload's field: ``values: Annotated[Tensor, Field(VALUES, 1)]``.

    ``kind`` is one of ``KINDS`` or another name, which the ledger then counts separately. An entry represents
    ``elements_per_entry`` of the elements sent (the last entry may represent fewer): 1 for values and
    indices, 8 for bits packed into bytes. None is for a field that always has the same length on all workers,
    such as a scale or the start of a block.
    """

    kind: str
    elements_per_entry: int | None = None


PayloadType: TypeAlias = type[Any]  # a NamedTuple of tensors, each annotated with its ``Field``


class Joining(metaclass=ABCMeta):  # noqa: B024 (a mark for classes that are NamedTuples already)
    """Payload classes that can join several workers' entries; register them by ``@Joining.register``.

    Every field then has the workers' entries in order, and ``add_to`` adds the entries of all.
    """


class Declared(NamedTuple):
    """The declarations of a payload class."""

    fields: Mapping[str, Field]  # by name, in their order
    values: str | None  # the only field of kind ``values``, if there is exactly one
    has_a_value_each: bool  # whether every element sent is a separate entry of that field
    kinds: tuple[str, ...]  # kinds in addition to ``KINDS``
    joins: bool  # whether one payload can join several workers' entries


def declared(payload: PayloadType) -> Declared:
    """The declarations of the class ``payload``.

    Raises ``ValueError`` for a class without fields, a field without a declaration, and a kind that cannot be
    part of a metric's name.
    """
    if payload in _known:
        return _known[payload]
    name = getattr(payload, "__name__", repr(payload))
    names = getattr(payload, "_fields", ())
    if not names:
        raise ValueError(f"a payload must be a NamedTuple of tensors, got {name}")
    found: dict[str, Field] = {}
    for field, hint in get_type_hints(payload, include_extras=True).items():
        fields = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Field)]
        if len(fields) != 1:
            rule = "declared, as Annotated[Tensor, Field(KIND)] with the kind of its bytes"
            raise ValueError(f"{name}.{field} must be {rule}")
        (own,), every = fields, fields[0].elements_per_entry
        if not isinstance(own.kind, str) or not _NAME.fullmatch(own.kind):
            raise ValueError(f"{name}.{field} must be of a kind in lower case, got {own!r}")
        if every is not None and (type(every) is not int or every < 1):
            raise ValueError(f"{name}.{field} must have elements_per_entry >= 1 or None, got {every!r}")
        found[field] = own
    of_values = [field for field in names if found[field].kind == VALUES]
    values = of_values[0] if len(of_values) == 1 else None
    each = values is not None and found[values].elements_per_entry == 1
    kinds = tuple(dict.fromkeys(found[field].kind for field in names if found[field].kind not in KINDS))
    return _known.setdefault(payload, Declared(found, values, each, kinds, issubclass(payload, Joining)))


def payload_of(codec: object) -> Declared:
    """The declarations of a codec's payload. Raises ``ValueError`` if they, or the payload, are missing."""
    try:
        payload = getattr(codec, "payload", None)
    except NotImplementedError:  # the codec inherits ``Codec.payload``
        payload = None
    if not isinstance(payload, type):
        name = type(codec).__name__
        raise ValueError(f"{name}.payload must be the class that encode returns, got {payload!r}")
    return declared(payload)


def values_of(payload: tuple[Tensor, ...]) -> Tensor:
    """The only field of values of a payload, [k]."""
    return getattr(payload, declared(type(payload)).values or "values")
