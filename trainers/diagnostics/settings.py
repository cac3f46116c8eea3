"""Settings of the diagnostics: measurements every so many steps that change no result."""

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
    """Those that are not None, given as they are or by their settings, are measured every so many steps.

    So is the last step; a step that is measured is also logged. Raises ``ValueError`` for ``every`` < 1,
    and for settings that a diagnostic does not have or that are no good.
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
        """Names of those that are on."""
        return [name for name in KINDS if getattr(self, name) is not None]


def _made(name: str, kind: type, settings: object) -> object:
    """A diagnostic from its settings."""
    require(isinstance(settings, dict), f"diagnostics.{name}", "settings by their names", settings)
    assert isinstance(settings, dict)
    known = {field.name for field in dataclasses.fields(kind)}
    for key in sorted(map(str, settings.keys() ^ known)):
        fault = "is missing" if key in known else f"has no effect: {name} has no such setting"
        raise ValueError(f"diagnostics.{name}.{key} {fault}")
    return kind(**settings)
