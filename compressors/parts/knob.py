"""Knobs: the settings by which methods meet a byte budget."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Knob(NamedTuple):
    """The setting of a method that changes how many bytes it sends.

    Only the sign of ``slope`` and the range must be right: pilot runs measure the rest. A setting whose value
    in the yaml is an integer gets integers.
    """

    setting: str  # name of a field; "first.density" is the density of the codec ``first``
    others: Mapping[str, float] = MappingProxyType(
        {}
    )  # fields set with it: their values over that of ``setting``
    slope: float = (
        1.0  # the bytes are about proportional to value ** slope; below 0 a higher value sends less
    )
    dense_at: float | None = (
        None  # sends about the bytes of dense training; None: pilots begin at the yaml's value
    )
    size_power: float = 0.0  # ``dense_at`` is times D ** size_power
    lowest: int = 1  # the lowest value of an integer
    highest: float = math.inf

    @property
    def factors(self) -> dict[str, float]:
        """By field, its value over the knob's."""
        return {self.setting: 1.0, **self.others}

    def within(self, part: str) -> "Knob":
        """The same knob of a method that has this one as its field ``part``."""
        others = {f"{part}.{name}": factor for name, factor in self.others.items()}
        return self._replace(setting=f"{part}.{self.setting}", others=others)


DENSITY = Knob("density", dense_at=0.5, highest=1.0)  # an entry takes a value and an index
THRESHOLD = Knob("threshold", slope=-2.0, dense_at=0.5**0.5, size_power=-0.5)  # the paper's rule
