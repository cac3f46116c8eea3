"""Knobs: the settings by which methods meet a byte budget."""

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
TOLERANCE = 0.05  # share of a budget by which a method may exceed it
PILOTS = 6  # the most pilots for a budget
LONGEST_BIN = 2**15  # of AdaComp
INDEX_FACTOR = 2  # of the first guess: a value with its index takes as many bytes as two values


class UnreachableError(Exception):
    """No setting of a method meets the budget."""


@dataclass(frozen=True)
class Knob:
    """One number that sets one or several settings of a method, and how the bytes depend on it."""

    factors: dict[str, float]  # by setting: the setting is the knob's value times this factor
    slope: float  # the bytes are about proportional to value ** slope
    first_value: Callable[[int, int], float]  # the value tried first, from the budget's share and D
    highest: float = math.inf  # the highest allowed value
    lowest_whole: int = 0  # the lowest of a few whole values, which are tried one by one; 0 for other knobs
    is_whole: bool = False  # settings are rounded to whole numbers, which are too many to try one by one
    depends_on_gradients: bool = False  # the bytes depend on the gradients, and so on the learning rate

    def overrides(self, value: float) -> str:
        """The settings for ``value`` as overrides of run.py, separated by blanks."""
        if self.lowest_whole or self.is_whole:
            return " ".join(f"{key}={max(1, round(value * by))}" for key, by in self.factors.items())
        return " ".join(f"{key}={value * by:.4g}" for key, by in self.factors.items())

    def match(self, sent: Callable[[float], float], wanted: float, start: float) -> float:
        """Of the values tried, the one with the most bytes up to ``wanted`` plus ``TOLERANCE``.

        ``sent`` trains a pilot with a value and returns its bytes; ``start`` is tried first. Raises
        ``UnreachableError`` if every value tried sends more.
        """
        tried: dict[float, float] = {}  # bytes by value

        def pilot(value: float) -> Pilot:
            value = min(value, self.highest)
            if value in tried:
                raise UnreachableError  # ends the search: the highest value sends less than wanted
            tried[value] = max(1.0, sent(value))
            if tried[value] > wanted and self._is_minimum(tried, value):
                raise UnreachableError
            return Pilot(value, tried[value], math.nan, "")

        try:
            if self.lowest_whole:
                self._search_whole_values(pilot, wanted)
            else:
                search(pilot, wanted, start, slope=self.slope, tolerance=TOLERANCE, runs=PILOTS)
        except UnreachableError:
            pass
        fitting = [value for value, found in tried.items() if found <= wanted * (1 + TOLERANCE)]
        if not fitting:
            raise UnreachableError
        return max(fitting, key=lambda value: (tried[value], -value))

    def _is_minimum(self, tried: dict[float, float], value: float) -> bool:
        """Whether the bytes no longer fall: a value that should send twice as much sent as much as ``value``.

        Values that should send less than twice as much may take the same number of entries of a small layer.
        """
        return any(
            (other / value) ** self.slope >= 2 and found < 1.01 * tried[value]
            for other, found in tried.items()
        )

    def _search_whole_values(self, pilot: Callable[[float], Pilot], wanted: float) -> None:
        """Try whole values, as if the bytes were proportional to the value."""
        value, fits, too_high = self.lowest_whole, self.lowest_whole - 1, math.inf
        for _ in range(PILOTS):
            found = pilot(value)
            if found.sent > wanted * (1 + TOLERANCE):
                too_high, value = value, value - 1
            else:
                fits, value = value, max(value + 1, math.floor(value * wanted / found.sent))
            if not fits < value < too_high:
                return


def _density(share: int, _: int) -> float:
    return 1 / (INDEX_FACTOR * share)


def _density_without_indices(share: int, _: int) -> float:
    return 1 / share


def _threshold(share: int, size: int) -> float:
    return 1 / (2 * math.sqrt(size / (INDEX_FACTOR * share)))  # the paper's rule


DENSITY = Knob({"budget.density": 1.0}, 1.0, _density, highest=1.0)
ADAPTIVE_DENSITY = Knob({"budget.density": 1.0}, 1.0, _density, highest=1.0, depends_on_gradients=True)
WITHOUT_INDICES = Knob({"budget.density": 1.0}, 1.0, _density_without_indices, highest=1.0)
THRESHOLD = Knob({"budget.threshold": 1.0}, -2.0, _threshold, depends_on_gradients=True)


def _bits(*keys: str) -> Knob:
    return Knob(dict.fromkeys(keys, 1.0), 1.0, lambda *_: 2.0, lowest_whole=2)


KNOBS = {
    "accordion": Knob(
        {"budget.density": 1.0, "compressor.k_high": 10.0},
        1.0,
        lambda share, size: 0.1 / share,
        highest=0.1,
        depends_on_gradients=True,
    ),
    "adacomp": Knob(
        {"compressor.conv_bin": 0.1, "compressor.other_bin": 1.0},
        -1.0,
        lambda share, size: 10.0 * share,
        highest=float(LONGEST_BIN),
        is_whole=True,
        depends_on_gradients=True,
    ),
    "chain": DENSITY,
    "cocktail": Knob(
        {"compressor.second.first.density": 1.0}, 1.0, lambda share, size: 1.0 / share, highest=1.0
    ),
    "diana": _bits("compressor.bits"),
    "powersgd": Knob({"compressor.rank": 1.0}, 1.0, lambda *_: 1.0, lowest_whole=1),
    "qsgd": _bits("compressor.bits"),
    "random_block": WITHOUT_INDICES,
    "random_k": WITHOUT_INDICES,
    "two_way": _bits("compressor.up.bits", "compressor.down.bits"),
}
FEEDBACKS = {  # methods that are feedbacks, with the compressor that the league uses for each
    "diana": "qsgd",
    "ef21": "top_k",
    "ef21_sgdm": "top_k",
}
FIXED_BYTES = ("arc_top_k", "clt_k", "ef21", "ef21_sgdm", "top_k")  # equal bytes at every learning rate
EXTRA_OVERRIDES = {"dgc": ("budget.schedule=constant",)}  # the warm-up of its density is longer than a task


@dataclass(frozen=True)
class Entry:
    """A method of the league: its overrides of run.py, and its knob, or None if it has none."""

    name: str
    overrides: tuple[str, ...]
    knob: Knob | None


def entry_of(name: str) -> Entry:
    """The entry of a compressor, of this project or an installed package, or of a feedback in ``FEEDBACKS``.

    Raises ``ValueError`` for another name.
    """
    compressor = FEEDBACKS.get(name, name)
    path = CONFIGS / f"{compressor}.yaml"
    is_ours = path in CONFIGS.glob("*.yaml")
    config = path.read_text(encoding="utf-8") if is_ours else _composed_config(compressor)
    overrides = (f"compressor={compressor}", *EXTRA_OVERRIDES.get(name, ()))
    if name in FEEDBACKS:
        overrides += (f"feedback={name}",)
    return Entry(name, overrides, KNOBS.get(name) or _knob_of_config(name, config))


def _composed_config(compressor: str) -> str:
    """The YAML text of a compressor that is not in ``CONFIGS``, as run.py composes it.

    Raises ``ValueError`` if run.py does not know it.
    """
    words = [f"compressor={compressor}", "--cfg", "job", "--package", "compressor"]
    done = subprocess.run(
        [sys.executable, "run.py", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr.strip() or f"no compressor {compressor!r}").splitlines()[-1]
        raise ValueError(one_line(said.removeprefix("error: ")))
    return done.stdout


def _knob_of_config(name: str, config: str) -> Knob | None:
    if "${budget.threshold}" in config:
        return THRESHOLD
    if "${budget.density}" in config:
        return DENSITY if name in FIXED_BYTES else ADAPTIVE_DENSITY
    return None


def method_names() -> Sequence[str]:
    """Names of all methods of this project, the baseline first."""
    found = {path.stem for path in CONFIGS.glob("*.yaml")} | set(FEEDBACKS)
    return sorted(found, key=lambda name: (name != "none", name))
