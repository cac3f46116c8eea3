"""Methods and feedback by the names of their configs."""

import importlib
import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compressors.core.checks import require_choice
from compressors.core.codec import Codec
from compressors.core.reducer import Reducer
from compressors.feedback import (
    DIANA,
    EF21,
    EF21SGDM,
    DecayedFeedback,
    ErrorFeedback,
    MomentumCorrection,
    no_feedback,
)

FEEDBACKS: dict[str, Callable[..., Reducer]] = {
    "decayed": DecayedFeedback,
    "diana": DIANA,
    "ef": ErrorFeedback,
    "ef21": EF21,
    "ef21_sgdm": partial(EF21SGDM, momentum=0.9),
    "low_pass": partial(ErrorFeedback, beta=0.1),
    "momentum_correction": partial(MomentumCorrection, momentum=0.9),
    "none": no_feedback,
}
GROUP = "total_error.compressors"  # of the entry points of packages with methods


def method_names() -> list[str]:
    """The names of all methods: modules of this package with a codec or a reducer of that name, and configs
    of installed packages."""
    files = Path(__file__).parent.glob("*.py")
    own = {path.stem for path in files if not path.stem.startswith("_") and _class_in(path.stem)}
    return sorted(own | _installed().keys())


def method(name: str, **settings: Any) -> Codec | Reducer:
    """The codec or reducer ``name``, such as top_k, with its ``settings``, such as density=0.01.

    A method of an installed package has the name of its config, whose other values are not used.

    Raises ``ValueError`` for an unknown name, and for settings that it does not have or does not accept.
    """
    found = _class_in(name) if name.isidentifier() else None
    if found is None:
        near = "".join(f"; did you mean {known}?" for known in get_close_matches(name, method_names(), 1))
        raise ValueError(f"compressor must be one of {', '.join(method_names())}, got {name!r}{near}")
    _require_settings(name, found, settings)
    if settings.get("threshold") is not None and settings.get("density") is not None:
        raise ValueError(f"density has no effect on {name} with a threshold")
    return found(**settings)


def feedback(name: str, **settings: Any) -> Callable[[Reducer], Reducer]:
    """The feedback ``name``, such as ef, around a reducer. Raises ``ValueError`` as ``method`` does."""
    require_choice("feedback", FEEDBACKS, name)
    _require_settings(name, FEEDBACKS[name], settings)
    return partial(FEEDBACKS[name], **settings)


def _class_in(name: str) -> type[Any] | None:
    """The first codec or reducer class in module ``name`` of this package, or the class of an installed
    package's config; None if there is neither."""
    if not (Path(__file__).parent / f"{name}.py").is_file():
        place, _, own = _installed().get(name, "").rpartition(".")
        return getattr(importlib.import_module(place), own) if place else None
    module = importlib.import_module(f".{name}", __package__)
    for found in vars(module).values():
        is_method = inspect.isclass(found) and issubclass(found, (Codec, Reducer))
        if is_method and found.__module__ == module.__name__ and not found.__name__.startswith("_"):
            return found
    return None


def _installed() -> dict[str, str]:
    """The classes that configs of installed packages name, by the names of the configs; imports nothing."""
    found = {}
    for package in {entry.module.partition(".")[0] for entry in entry_points(group=GROUP)}:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in Path(folder, "conf", "compressor").glob("*.yaml"):
                target = re.search(r"^_target_: *([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
                if target:
                    found[path.stem] = target[1]
    return found


def _require_settings(name: str, factory: Callable[..., object], settings: dict[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters.values()
    known = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    unknown = sorted(settings.keys() - {p.name for p in known})
    if unknown:
        has = ", ".join(p.name for p in known) or "none"
        raise ValueError(f"{unknown[0]} has no effect: the settings of {name} are {has}")
    missing = [p.name for p in known if p.default is p.empty and p.name not in settings]
    if missing:
        raise ValueError(f"{missing[0]} is missing: {name} needs it")
