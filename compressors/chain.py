"""Composition: the second codec compresses the values that the first one keeps.

Either sparsify and then quantise (Basu et al., 2019, https://arxiv.org/abs/1906.02367: Qsparse-local-SGD), or
sparsify twice. Bytes per element: those of the second codec's payload,
plus those of the first codec's indices if they are sent.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from compressors.api import (
    Codec,
    Field,
    Knob,
    Plan,
    Sparse,
    Step,
    Traits,
    backend_of,
    require,
    squared_norm,
)
from compressors.core.fields import PayloadType, declared, payload_of, values_of
from compressors.core.payloads import index_dtype
from compressors.parts.gaussian import refuse_growth


@dataclass(frozen=True, kw_only=True)
class Chain(Codec):
    """``first`` selects exact values of some elements; ``second`` compresses these values [k].

    The residual of ``second`` is put back at the positions that ``first`` selected. Raises ``ValueError``
    unless ``first`` sends one exact value per element. If its positions do not follow from the seed,
    ``second`` must also be a sparsifier, or be dense.
    """

    first: Codec
    second: Codec

    def __post_init__(self) -> None:
        for codec in (self.first, self.second):
            require(isinstance(codec, Codec), "Chain", "of codecs", type(codec).__name__)
            rule = "of codecs whose selection needs no state and no exchange between workers"
            require(type(codec).choose is Codec.choose, "Chain", rule, type(codec).__name__)
        first, second = self.first, self.second
        exact = payload_of(first).has_a_value_each and first.traits.exact
        require(exact, "Chain.first", "a codec that sends one exact value per element", type(first).__name__)
        indexed = any(field.elements_per_entry == 1 for field in self._where.values())
        fits = self._is_redrawn or self._sparsifies_twice or (second.traits.dense and indexed)
        rule = "a sparsifier or a codec that sends every element" if indexed else "a sparsifier"
        require(fits, f"Chain.second after {type(first).__name__}", rule, type(second).__name__)

    @property
    def payload(self) -> PayloadType:
        if self._is_redrawn:
            return self.second.payload
        return Sparse if self._sparsifies_twice else _joined(self.first.payload, self.second.payload)

    @property
    def traits(self) -> Traits:
        first, second = self.first.traits, self.second.traits
        return Traits(
            linear=first.linear and second.linear,
            ragged=first.ragged or second.ragged,
            exact=first.exact and second.exact,
            drawn=first.drawn and second.drawn,
            drawn_in_part=self._is_redrawn and not second.drawn,
            seeded=first.seeded or second.seeded,
            of_senders=first.of_senders,
        )

    @property
    def usual_feedback(self) -> str:  # type: ignore[override]  # an attribute of other codecs
        """That of the first codec, which decides what is left."""
        return self.first.usual_feedback

    @property
    def uses_learning_rate(self) -> bool:
        return self.first.uses_learning_rate or self.second.uses_learning_rate

    @property
    def knob(self) -> Knob | None:
        """That of the last sparsifier."""
        if self.second.traits.dense or self.second.knob is None:
            return None if self.first.knob is None else self.first.knob.within("first")
        own = self.second.knob.within("second")
        return own if own.dense_at is None else own._replace(dense_at=2 * own.dense_at)  # within a selection

    def check(self, plan: Plan) -> None:
        """``second`` is checked without feedback: its bound is for any vector, not for selected values."""
        self.first.check(plan)
        self.second.check(plan._replace(feedback="", needs_contraction=False))
        refuse_growth(self, plan, f"{type(self.first).__name__} and {type(self.second).__name__}")

    def for_model(self, num_parameters: int) -> "Chain":
        first, second = (codec.for_model(num_parameters) for codec in (self.first, self.second))
        return Chain(first=first, second=second)

    def encode(self, x: Tensor, step: Step) -> Any:
        outer = self.first.encode(x, step)
        kept = values_of(outer)
        within = _within(step, len(kept))
        encode = backend_of(x.device).encode
        inner = encode(self.second, kept, within) if len(kept) else self._nothing(kept, step)
        self.first.add(outer, x, step)  # its values are now the residual of the second codec
        if self._is_redrawn:
            return inner
        if self._sparsifies_twice:
            positions = self.first.positions(outer, x.numel(), step)
            positions = positions[self.second.positions(inner, len(kept), within)]
            ascending = positions.argsort()
            return Sparse(values_of(inner)[ascending], positions[ascending].to(index_dtype(x.numel())))
        return self.payload(*(getattr(outer, name) for name in self._where), *inner)

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        if self._sparsifies_twice and not self._is_redrawn:
            payload.add_to(out)
            return
        outer, inner = self._parts(payload, out.numel(), step)
        kept = values_of(outer).to(out.dtype)
        if not len(kept):
            return
        backend_of(out.device).decode(self.second, inner, kept, _within(step, len(kept)))
        own = outer._replace(**{self._values_name: kept})
        self.first.add(own, out, step)

    def num_sent(self, payload: Any, size: int, step: Step) -> int:
        if self._sparsifies_twice and not self._is_redrawn:
            return payload.num_sent(size)
        outer, inner = self._parts(payload, size, step)
        kept = len(values_of(outer))
        return 0 if not kept else self.second.num_sent(inner, kept, _within(step, kept))

    def positions(self, payload: Any, size: int, step: Step) -> Tensor:
        if self._sparsifies_twice and not self._is_redrawn:
            return payload.positions(size)
        outer, inner = self._parts(payload, size, step)
        kept = len(values_of(outer))
        within = self.second.positions(inner, kept, _within(step, kept))
        return self.first.positions(outer, size, step)[within]

    def error_bound(self, x: Tensor, step: Step) -> float:
        """||x||^2 for exact values; otherwise the sum of both bounds, the second one on the values that
        ``first`` selects."""
        if self.traits.exact:
            return squared_norm(x).item()
        if self.first.traits.seeded:  # the selection differs in every step
            return math.inf
        kept = values_of(self.first.encode(x.clone(), step))
        return self.first.error_bound(x, step) + self.second.error_bound(kept, _within(step, len(kept)))

    def _nothing(self, kept: Tensor, step: Step) -> Any:
        """The payload of ``second`` for an empty vector: empty fields, except fields of a fixed length."""
        like = self.second.encode(kept.new_zeros(1), _within(step, 1))
        own = declared(self.second.payload).fields
        parts = [
            field[:0] if own[name].elements_per_entry else field for name, field in like._asdict().items()
        ]
        return self.second.payload(*parts)

    @property
    def _is_redrawn(self) -> bool:
        """Whether all workers know the selection of ``first``, so positions are not sent."""
        return self.first.traits.linear and self.first.traits.drawn

    @property
    def _sparsifies_twice(self) -> bool:
        """Whether the payload consists of the values and positions after both selections."""
        return self.second.traits.exact and payload_of(self.second).has_a_value_each

    @property
    def _values_name(self) -> str:
        """The field of ``first`` that holds its values."""
        return declared(self.first.payload).values or "values"

    @property
    def _where(self) -> dict[str, Field]:
        """The fields of ``first`` that give the positions of its values."""
        names = declared(self.first.payload)
        return {name: field for name, field in names.fields.items() if name != names.values}

    def _parts(self, payload: Any, size: int, step: Step) -> tuple[Any, Any]:
        """The payload of ``first``, with zeros for values, and that of ``second``."""
        if self._is_redrawn:
            outer = _drawn(self.first, size, step._replace(worker=0, weights=()), payload[0].device)
            return outer._replace(**{self._values_name: values_of(outer).clone()}), payload
        where = dict(zip(self._where, payload, strict=False))
        inner = self.second.payload(*payload[len(where) :])
        count = max(len(where[name]) for name, own in self._where.items() if own.elements_per_entry == 1)
        values = {self._values_name: torch.zeros(count, device=payload[0].device)}
        return self.first.payload(**where, **values), inner


def _within(step: Step, count: int) -> Step:
    """The step for the second codec, whose vector consists of the ``count`` selected values."""
    return step._replace(segment=f"{step.segment}/second", shapes=((count,),))


@lru_cache(maxsize=8)
def _drawn(first: Codec, size: int, step: Step, device: torch.device) -> Any:
    """A payload of zeros of ``first``, which selects the same elements on all workers; drawn once."""
    return first.encode(torch.zeros(size, device=device), step)


_known: dict[tuple[PayloadType, PayloadType], PayloadType] = {}


def _joined(first: PayloadType, second: PayloadType) -> PayloadType:
    """The payload class with the position fields of ``first`` and all fields of ``second``."""
    if (first, second) in _known:
        return _known[first, second]
    outer, inner = declared(first), declared(second)
    hints = [(name, Annotated[Tensor, own]) for name, own in outer.fields.items() if name != outer.values]
    hints += [(f"second_{name}", Annotated[Tensor, field]) for name, field in inner.fields.items()]
    made: Any = NamedTuple(f"{first.__name__}Of{second.__name__}", hints)  # type: ignore[misc] # at run time
    return _known.setdefault((first, second), made)
