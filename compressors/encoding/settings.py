"""Settings of the group ``wire``: the codes of indices and of values."""

from dataclasses import dataclass

from compressors.core.checks import require_choice

INDICES = ("plain", "auto", "bitmap", "rice")
VALUES = ("fp32", "bf16", "fp16", "int8", "int4", "int2")


class EncodingError(RuntimeError):
    """A worker's message cannot be decoded: it was truncated, changed or forged.

    Steps are counted from 1.
    """

    def __init__(self, worker: int, step: int, reason: str) -> None:
        super().__init__(f"the message of worker {worker} in step {step} cannot be decoded: {reason}")


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The encoding of messages: codes of indices and values.

    ``indices``: ``plain`` takes 4 bytes per index, ``bitmap`` one bit per element of the model, ``rice``
    about 1.5 bits more than the logarithm of a gap (``index_codes.py``), ``auto`` the smallest of the three,
    chosen for every message. ``values``: ``fp32`` does not change them; ``bf16``, ``fp16``, ``int8``,
    ``int4`` and ``int2`` round them (``value_codes.py``), and the rounding error stays in p - C(p).
    Raises ``ValueError`` for other codes.
    """

    indices: str = "plain"
    values: str = "fp32"

    def __post_init__(self) -> None:
        require_choice("wire.indices", INDICES, self.indices)
        require_choice("wire.values", VALUES, self.values)

    @property
    def is_coded(self) -> bool:
        return self.indices != "plain" or self.values != "fp32"

    @property
    def rounds(self) -> bool:
        return self.values != "fp32"


PLAIN = Encoding()
