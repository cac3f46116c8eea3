"""How what workers send is written down: the codes of indices and of values."""

from dataclasses import dataclass
from typing import Any

from compressors.api import Context
from compressors.checks import require
from compressors.fields import payload_of
from compressors.rules import Drawn

INDICES = ("plain", "auto", "bitmap", "rice")
VALUES = ("fp32", "bf16", "fp16", "int8")


class WireError(RuntimeError):
    """What a worker sent cannot be decoded: it was cut short or changed on its way, or its sender lies.

    Steps are counted from 1.
    """

    def __init__(self, worker: int, step: int, reason: str) -> None:
        super().__init__(f"what worker {worker} sent in step {step} cannot be decoded: {reason}")


@dataclass(frozen=True, kw_only=True)
class Wire:
    """The codes of a worker's message.

    ``indices``: ``plain`` takes 4 bytes for each, ``bitmap`` one bit for each element of the model, ``rice``
    about 1.5 bits more than the logarithm of a gap (``index_codes.py``), ``auto`` the smallest of the
    three, chosen for every message. ``values``: ``fp32`` leaves them as they are; ``bf16``, ``fp16`` and
    ``int8`` round them (``value_codes.py``), and what rounding took off stays with the worker. Raises
    ``ValueError`` for others.
    """

    indices: str = "plain"
    values: str = "fp32"

    def __post_init__(self) -> None:
        known = isinstance(self.indices, str) and self.indices in INDICES
        require(known, "wire.indices", f"one of {', '.join(INDICES)}", self.indices)
        known = isinstance(self.values, str) and self.values in VALUES
        require(known, "wire.values", f"one of {', '.join(VALUES)}", self.values)

    @property
    def is_coded(self) -> bool:
        return self.indices != "plain" or self.values != "fp32"

    @property
    def rounds(self) -> bool:
        return self.values != "fp32"

    def require_fit(self, method: Any) -> None:
        """Raise ``ValueError`` for codes that have no effect with ``method``, or no meaning."""
        name = type(method).__name__
        if self.is_coded and hasattr(method, "encode") and not payload_of(method).has_a_value_each:
            raise ValueError(f"wire must be plain with {name}: it does not send one value an element")
        if hasattr(method, "reduce") or method.linear:
            if self.rounds:
                raise ValueError(
                    f"wire.values must be fp32 with {name}, got {self.values!r}: an all-reduce adds values "
                    "up on their way, and nobody could feed back what rounding took from the sums"
                )
            if self.is_coded:
                said = f"wire.indices={self.indices} has no effect with {name}"
                raise ValueError(f"{said}: it sends no indices")
        elif self.is_coded and self.indices != "auto" and draws(method):
            said = f"wire.indices must be auto with {name}, got {self.indices!r}"
            raise ValueError(f"{said}: its indices follow from the seed and need not travel")


PLAIN = Wire()


def draws(method: Any) -> bool:
    """Whether everybody can tell from the seed which entries a worker sends."""
    rule = getattr(method, "rule", None)
    return rule is not None and isinstance(rule(1, Context(0, 0), range(1)), Drawn)
