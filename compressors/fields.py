"""Declarations of payload fields: the kind of their bytes, and the elements per entry."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

VALUES, INDICES, PADDING, METADATA = "values", "indices", "padding", "metadata"
KINDS = (VALUES, INDICES, PADDING, METADATA)  # that every ledger has
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = ("entropy_bound",)  # comm/..._bytes_total is another metric


class Field(NamedTuple):
    """A field of a payload, a tensor [...].

    ``kind`` is one of ``KINDS`` or any other word, which the ledger then counts by itself. An entry stands
    for ``elements_per_entry`` of the elements sent, the last one perhaps for fewer: 1 for values and indices,
    8 for bits that are packed into bytes. None is for a field that is as long on all workers, whatever they
    send: a scale, or the start of a block.
    """

    kind: str
    elements_per_entry: int | None = None


def fields(**by_name: Field) -> Mapping[str, Field]:
    """What a payload's ``FIELDS`` is: every field by its name."""
    return MappingProxyType(by_name)


class Declared(NamedTuple):
    """What a class of payloads says of itself."""

    fields: Mapping[str, Field]  # by name, in their order
    values: str | None  # the one field of kind ``values``, if there is one
    has_a_value_each: bool  # whether every element sent travels as an entry of its own in that field
    kinds: tuple[str, ...]  # those that no other payload has
    joins: bool  # whether one payload may hold what several workers send, in a row


@lru_cache(maxsize=256)
def declared(payload: type) -> Declared:
    """What ``payload``, a class, declares in ``FIELDS``.

    Raises ``ValueError`` for a class without fields, a field that is not declared, a declaration of no field
    and a kind that is no name for a metric.
    """
    name = getattr(payload, "__name__", repr(payload))
    names, found = getattr(payload, "_fields", ()), getattr(payload, "FIELDS", {})
    if not names:
        raise ValueError(f"a payload must be a NamedTuple of tensors, got {name}")
    for field in names:
        if field not in found:
            raise ValueError(f"{name}.{field} must be declared: {name}.FIELDS says the kind of its bytes")
    for field, own in found.items():
        if field not in names:
            raise ValueError(f"{name}.FIELDS declares {field}, which is no field of {name}")
        if not isinstance(own, Field) or not _is_kind(own.kind):
            raise ValueError(f"{name}.FIELDS must say a kind in lower case for {field}, got {own!r}")
        every = own.elements_per_entry
        if every is not None and (type(every) is not int or every < 1):
            raise ValueError(
                f"{name}.FIELDS must say elements_per_entry >= 1 or None for {field}, got {every!r}"
            )
    of_values = [field for field in names if found[field].kind == VALUES]
    values = of_values[0] if len(of_values) == 1 else None
    has_a_value_each = values is not None and found[values].elements_per_entry == 1
    kinds = tuple(dict.fromkeys(found[field].kind for field in names if found[field].kind not in KINDS))
    joins = bool(getattr(payload, "JOINS", False))
    return Declared({field: found[field] for field in names}, values, has_a_value_each, kinds, joins)


def payload_of(codec: Any) -> Declared:
    """What a codec's payload declares. Raises ``ValueError`` where the codec names none, or it does not."""
    payload = getattr(codec, "payload", None)
    if not isinstance(payload, type):
        name = type(codec).__name__
        raise ValueError(f"{name}.payload must be the class of what encode returns, got {payload!r}")
    return declared(payload)


def values_of(payload: Any) -> Any:
    """The one field of values of a payload, a tensor [k]."""
    return getattr(payload, declared(type(payload)).values or "values")


def require_own(codec: Any, part: Any) -> None:
    """Raise ``ValueError`` unless ``part`` is of the class that ``codec`` names as its payload."""
    if type(part) is not codec.payload:
        name, own = type(codec).__name__, codec.payload.__name__
        raise ValueError(
            f"{name}.encode must return what {name}.payload names, {own}, got {type(part).__name__}"
        )


def _is_kind(kind: object) -> bool:
    return isinstance(kind, str) and bool(_NAME.fullmatch(kind)) and kind not in _TAKEN
