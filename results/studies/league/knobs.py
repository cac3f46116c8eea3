"""The setting by which a method meets a byte budget."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from results.compare.budget import Pilot, search
from results.escaping import one_line

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "conf/compressor"
TOLERANCE = 0.05  # by which a method may exceed its budget, as a share of it
PILOTS = 6  # at most, for a budget
INDEX_SHARE = 2  # first guess: an entry and its index take as many bytes as two entries


class UnreachableError(Exception):
    """No setting of a method meets the budget."""


@dataclass(frozen=True)
class Knob:
    """Settings that are changed together, and how the bytes depend on them."""

    factors: dict[str, float]  # by setting: its value is this times that of the knob
    slope: float  # exponent of the bytes as a power of the value
    first: Callable[[int, int], float]  # first value tried, from the budget's share and the model's size
    highest: float = math.inf  # value
    lowest: int = 0  # of a knob with few whole values, all of which may be tried
    is_rounded: bool = False  # whole values, but too many to try
    adapts: bool = False  # the bytes depend on the gradients, and so on the rate

    def words(self, value: float) -> str:
        """The settings as overrides, separated by blanks."""
        if self.lowest or self.is_rounded:
            return " ".join(f"{key}={max(1, round(value * by))}" for key, by in self.factors.items())
        return " ".join(f"{key}={value * by:.4g}" for key, by in self.factors.items())

    def match(self, sent: Callable[[float], float], wanted: float, start: float) -> float:
        """The value with the most bytes within ``TOLERANCE`` of ``wanted`` or below it.

        ``sent`` trains a pilot and returns its bytes. Raises ``UnreachableError`` if every value tried sends
        more.
        """
        tried: dict[float, float] = {}  # bytes by value

        def pilot(value: float) -> Pilot:
            value = min(value, self.highest)
            if value in tried:
                raise UnreachableError  # the highest value sends too little
            tried[value] = max(1.0, sent(value))
            if tried[value] > wanted and self._is_floor(tried, value):
                raise UnreachableError
            return Pilot(value, tried[value], math.nan, "")

        try:
            if self.lowest:
                self._search_whole(pilot, wanted)
            else:
                search(pilot, wanted, start, slope=self.slope, tolerance=TOLERANCE, runs=PILOTS)
        except UnreachableError:
            pass
        fitting = [value for value, found in tried.items() if found <= wanted * (1 + TOLERANCE)]
        if not fitting:
            raise UnreachableError
        return max(fitting, key=lambda value: (tried[value], -value))

    def _is_floor(self, tried: dict[float, float], value: float) -> bool:
        """Whether another value, with more bytes by ``slope``, sent no more."""
        return any(
            (value - other) * self.slope < 0 and found < 1.01 * tried[value]
            for other, found in tried.items()
            if other != value
        )

    def _search_whole(self, pilot: Callable[[float], Pilot], wanted: float) -> None:
        """The bytes of whole values are taken as proportional to the value."""
        value, fits, too_high = self.lowest, self.lowest - 1, math.inf
        for _ in range(PILOTS):
            found = pilot(value)
            if found.sent > wanted * (1 + TOLERANCE):
                too_high, value = value, value - 1
            else:
                fits, value = value, max(value + 1, math.floor(value * wanted / found.sent))
            if not fits < value < too_high:
                return


def _density(share: int, _: int) -> float:
    return 1 / (INDEX_SHARE * share)


def _density_without_indices(share: int, _: int) -> float:
    return 1 / share


def _threshold(share: int, size: int) -> float:
    return 1 / (2 * math.sqrt(size / (INDEX_SHARE * share)))  # the paper's rule


DENSITY = Knob({"budget.density": 1.0}, 1.0, _density, highest=1.0)
ADAPTIVE_DENSITY = Knob({"budget.density": 1.0}, 1.0, _density, highest=1.0, adapts=True)
WITHOUT_INDICES = Knob({"budget.density": 1.0}, 1.0, _density_without_indices, highest=1.0)
THRESHOLD = Knob({"budget.threshold": 1.0}, -2.0, _threshold, adapts=True)


def _bits(*keys: str) -> Knob:
    return Knob(dict.fromkeys(keys, 1.0), 1.0, lambda *_: 2.0, lowest=2)


SPECIAL = {
    "accordion": Knob(
        {"budget.density": 1.0, "compressor.k_high": 10.0},
        1.0,
        lambda share, size: 0.1 / share,
        highest=0.1,
        adapts=True,
    ),
    "adacomp": Knob(
        {"compressor.conv_bin": 0.1, "compressor.other_bin": 1.0},
        -1.0,
        lambda share, size: 10.0 * share,
        is_rounded=True,
        adapts=True,
    ),
    "chain": DENSITY,
    "cocktail": Knob(
        {"compressor.second.first.density": 1.0}, 1.0, lambda share, size: 1.0 / share, highest=1.0
    ),
    "diana": _bits("compressor.bits"),
    "powersgd": Knob({"compressor.rank": 1.0}, 1.0, lambda *_: 1.0, lowest=1),
    "qsgd": _bits("compressor.bits"),
    "random_block": WITHOUT_INDICES,
    "random_k": WITHOUT_INDICES,
    "two_way": _bits("compressor.up.bits", "compressor.down.bits"),
}
FEEDBACKS = {  # methods that are feedbacks: the compressor with which the league uses them
    "diana": "qsgd",
    "ef21": "top_k",
    "ef21_sgdm": "top_k",
}
EXACT = ("arc_top_k", "clt_k", "ef21", "ef21_sgdm", "top_k")  # bytes of any rate
EXTRA = {"dgc": ("budget.schedule=constant",)}  # its warm-up is longer than the tasks


@dataclass(frozen=True)
class Entry:
    """A method of the league: its overrides, and the knob that meets a budget; None if it has none."""

    name: str
    overrides: tuple[str, ...]
    knob: Knob | None


def entry_of(name: str) -> Entry:
    """The entry of a compressor, of this project or an installed package, or of a feedback in ``FEEDBACKS``.

    Raises ``ValueError`` for another name.
    """
    compressor = FEEDBACKS.get(name, name)
    path = CONFIGS / f"{compressor}.yaml"
    config = path.read_text(encoding="utf-8") if path in CONFIGS.glob("*.yaml") else _composed(compressor)
    overrides = (f"compressor={compressor}", *EXTRA.get(name, ()))
    if name in FEEDBACKS:
        overrides += (f"feedback={name}",)
    return Entry(name, overrides, SPECIAL.get(name) or _knob_in(name, config))


def _composed(compressor: str) -> str:
    """The config of a compressor that is not in ``CONFIGS``, from run.py."""
    words = [f"compressor={compressor}", "--cfg", "job", "--package", "compressor"]
    done = subprocess.run(
        [sys.executable, "run.py", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr.strip() or f"no compressor {compressor!r}").splitlines()[-1]
        raise ValueError(one_line(said.removeprefix("error: ")))
    return done.stdout


def _knob_in(name: str, config: str) -> Knob | None:
    if "${budget.threshold}" in config:
        return THRESHOLD
    if "${budget.density}" in config:
        return DENSITY if name in EXACT else ADAPTIVE_DENSITY
    return None


def names() -> Sequence[str]:
    """All methods of this project, the baseline first."""
    found = {path.stem for path in CONFIGS.glob("*.yaml")} | set(FEEDBACKS)
    return sorted(found, key=lambda name: (name != "none", name))
