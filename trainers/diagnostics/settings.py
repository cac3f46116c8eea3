"""Settings of the diagnostics, which are measured at intervals and change no result."""

import dataclasses
from dataclasses import dataclass

from compressors.core.checks import is_count, require
from trainers.diagnostics.bound import Bound
from trainers.diagnostics.gap import Gap
from trainers.diagnostics.hindsight import Hindsight
from trainers.diagnostics.selection_error import SelectionError
from trainers.diagnostics.staleness import Staleness
from trainers.diagnostics.xi import Xi

KINDS: dict[str, type] = {
    "xi": Xi,
    "selection_error": SelectionError,
    "staleness": Staleness,
    "bound": Bound,
    "gap": Gap,
    "hindsight": Hindsight,
}


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """Diagnostics that are not None are measured every ``every`` steps; given as objects or as settings.

    The last step is measured too, and a measured step is also logged. Raises ``ValueError`` for ``every`` <
    1, and for unknown or invalid settings of a diagnostic.
    """

    every: int = 50  # steps
    xi: Xi | None = None
    selection_error: SelectionError | None = None
    staleness: Staleness | None = None
    bound: Bound | None = None
    gap: Gap | None = None
    hindsight: Hindsight | None = None

    def __post_init__(self) -> None:
        require(is_count(self.every), "diagnostics.every", "an integer >= 1", self.every)
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                object.__setattr__(self, name, _made(name, kind, value))

    @property
    def names(self) -> list[str]:
        """Names of the active diagnostics."""
        return [name for name in KINDS if getattr(self, name) is not None]


def _made(name: str, kind: type, settings: object) -> object:
    """A diagnostic from its settings."""
    require(isinstance(settings, dict), f"diagnostics.{name}", "a mapping of settings", settings)
    assert isinstance(settings, dict)
    known = {field.name for field in dataclasses.fields(kind)}
    for key in sorted(map(str, settings.keys() ^ known)):
        fault = "is missing" if key in known else f"has no effect: {name} has no such setting"
        raise ValueError(f"diagnostics.{name}.{key} {fault}")
    return kind(**settings)
