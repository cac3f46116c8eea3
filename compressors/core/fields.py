"""Declarations of payload fields: the kind of their bytes, and the elements per entry."""

import re
from abc import ABCMeta
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, get_type_hints

from torch import Tensor

VALUES, INDICES, PADDING, METADATA = "values", "indices", "padding", "metadata"
KINDS = (VALUES, INDICES, PADDING, METADATA)  # that every ledger has
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = ("entropy_bound",)  # comm/..._bytes_total is another metric


class Field(NamedTuple):
    """What a field of a payload is: ``values: Annotated[Tensor, Field(VALUES, 1)]``.

    ``kind`` is one of ``KINDS`` or any other word, which the ledger then counts by itself. An entry stands
    for ``elements_per_entry`` of the elements sent, the last one perhaps for fewer: 1 for values and indices,
    8 for bits that are packed into bytes. None is for a field that is as long on all workers, whatever they
    send: a scale, or the start of a block.
    """

    kind: str
    elements_per_entry: int | None = None


PayloadType: TypeAlias = type[Any]  # a NamedTuple of tensors, each annotated with its ``Field``


class HasPayload(Protocol):
    """What names the payload that it makes: a codec."""

    @property
    def payload(self) -> PayloadType: ...


class Joining(metaclass=ABCMeta):  # noqa: B024 (a mark for classes that are NamedTuples already)
    """Payloads of which one may hold what several workers send: ``@Joining.register`` above the class.

    Every field then has one worker's entries after the other's, and ``add_to`` adds the entries of all.
    """


class Declared(NamedTuple):
    """What a class of payloads says of itself."""

    fields: Mapping[str, Field]  # by name, in their order
    values: str | None  # the one field of kind ``values``, if there is one
    has_a_value_each: bool  # whether every element sent travels as an entry of its own in that field
    kinds: tuple[str, ...]  # those that no other payload has
    joins: bool  # whether one payload may hold what several workers send, in a row


_known: dict[PayloadType, Declared] = {}


def declared(payload: PayloadType) -> Declared:
    """What ``payload``, a class, declares of its fields; found out once.

    Raises ``ValueError`` for a class without fields, a field that is not declared, and a kind that is no name
    for a metric.
    """
    if payload not in _known:
        _known[payload] = _declared(payload)
    return _known[payload]


def _declared(payload: PayloadType) -> Declared:
    name = getattr(payload, "__name__", repr(payload))
    names = getattr(payload, "_fields", ())
    if not names:
        raise ValueError(f"a payload must be a NamedTuple of tensors, got {name}")
    found: dict[str, Field] = {}
    for field, hint in get_type_hints(payload, include_extras=True).items():
        said = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Field)]
        if len(said) != 1:
            rule = "declared, as Annotated[Tensor, Field(KIND)] with the kind of its bytes"
            raise ValueError(f"{name}.{field} must be {rule}")
        (own,), every = said, said[0].elements_per_entry
        if not _is_kind(own.kind):
            raise ValueError(f"{name}.{field} must be of a kind in lower case, got {own!r}")
        if every is not None and (type(every) is not int or every < 1):
            raise ValueError(f"{name}.{field} must have elements_per_entry >= 1 or None, got {every!r}")
        found[field] = own
    of_values = [field for field in names if found[field].kind == VALUES]
    values = of_values[0] if len(of_values) == 1 else None
    has_a_value_each = values is not None and found[values].elements_per_entry == 1
    kinds = tuple(dict.fromkeys(found[field].kind for field in names if found[field].kind not in KINDS))
    return Declared(found, values, has_a_value_each, kinds, issubclass(payload, Joining))


def payload_of(codec: object) -> Declared:
    """What a codec's payload declares. Raises ``ValueError`` where the codec names none, or it does not."""
    payload = getattr(codec, "payload", None)
    if not isinstance(payload, type):
        name = type(codec).__name__
        raise ValueError(f"{name}.payload must be the class of what encode returns, got {payload!r}")
    return declared(payload)


def values_of(payload: tuple[Tensor, ...]) -> Tensor:
    """The one field of values of a payload, a tensor [k]."""
    return getattr(payload, declared(type(payload)).values or "values")


def require_own(codec: "HasPayload", part: object) -> None:
    """Raise ``ValueError`` unless ``part`` is of the class that ``codec`` names as its payload."""
    if type(part) is not codec.payload:
        name, own = type(codec).__name__, codec.payload.__name__
        raise ValueError(
            f"{name}.encode must return what {name}.payload names, {own}, got {type(part).__name__}"
        )


def _is_kind(kind: object) -> bool:
    return isinstance(kind, str) and bool(_NAME.fullmatch(kind)) and kind not in _TAKEN
