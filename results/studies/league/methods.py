"""Methods of the league."""

from collections.abc import Sequence
from dataclasses import dataclass

from results.command import ROOT
from results.compare.knobs import Knob, declared_knobs

CONFIGS = ROOT / "conf/compressor"
FEEDBACKS = {  # methods that are feedbacks, with the compressor that the league uses for each
    "diana": "qsgd",
    "ef21": "top_k",
    "ef21_sgdm": "top_k",
}
EXTRA_OVERRIDES = {"dgc": ("budget.schedule=constant",)}  # the warm-up of its density is longer than a task


@dataclass(frozen=True)
class Entry:
    """A method of the league: its overrides of run.py, and its knob, or None if it has none."""

    name: str
    overrides: tuple[str, ...]
    knob: Knob | None


def entries_of(names: Sequence[str], knob: str | None = None) -> list[Entry]:
    """The entries of compressors, of this project or installed packages, and of feedbacks in ``FEEDBACKS``.

    ``knob`` replaces the knob that their classes declare. Raises ``ValueError`` for another name, and for a
    ``knob`` without a number.
    """
    compressors = [f"compressor={FEEDBACKS.get(name, name)}" for name in names]
    knobs = declared_knobs([([word], knob) for word in compressors])
    return [
        Entry(
            name,
            (word, *EXTRA_OVERRIDES.get(name, ()), *([f"feedback={name}"] if name in FEEDBACKS else [])),
            own,
        )
        for name, word, own in zip(names, compressors, knobs, strict=True)
    ]


def method_names() -> Sequence[str]:
    """Names of all methods of this project, the baseline first."""
    found = {path.stem for path in CONFIGS.glob("*.yaml")} | set(FEEDBACKS)
    return sorted(found, key=lambda name: (name != "none", name))
