"""Check of the ``_target_``s of a config: each must name a factory of its group.

A factory is in this project or in a module that an installed package declares for the group
(``installed.py``).
"""

import importlib
import inspect
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from compressors.core.checks import shown
from trainers.config import installed
from trainers.files.plain import Config
from trainers.names import full_name, is_ours


class Group(NamedTuple):
    """The location of a config group's factories, and the requirements on them."""

    place: str  # a package, with all of its modules, or one module
    is_partial: bool = False  # the factory is called later, by the trainer's construction
    given: tuple[str, ...] = ()  # arguments that the later call adds to the settings
    makes: tuple[str, ...] = ()  # attributes of which a class must have one
    inside: tuple[str, ...] = ()  # further attributes, for a class inside the settings of another one


# A factory takes its settings by keyword only. The packages also have functions that write files or start
# processes; a config cannot call these, because they have positional arguments or private names.
GROUPS = {
    "model": Group("models"),
    "data": Group("data"),
    "compressor": Group("compressors", makes=("encode", "reduce"), inside=("decompress",)),
    "feedback": Group("compressors.feedback", is_partial=True, given=("inner",)),
    "optimizer": Group("trainers.optimizer", is_partial=True, given=("model",)),
    "schedule": Group("trainers.schedules", makes=("factor", "propose")),
    "trainer": Group("trainers.settings"),
    "local": Group("trainers.local"),
    "checkpoint": Group("trainers.checkpoint.saving"),
    "diagnostics": Group("trainers.diagnostics.settings"),
    "wire": Group("compressors.encoding.settings", makes=("is_coded",)),
    "tracker": Group("trainers.run.trackers", is_partial=True, given=("folder", "name", "config", "facts")),
}


def check_targets(config: Config) -> None:
    """Raise ``ValueError`` for a ``_target_`` outside the place of its group, at any depth of the config.

    Checks only names and the metadata of packages; imports nothing. Also refuses texts that Hydra would
    interpolate at the instantiation.
    """
    for path, value, _ in walk(config):
        if isinstance(value, str) and "${" in value:
            raise ValueError(
                f"{'.'.join(path)} must not contain ${{...}} after resolution, got {shown(value)}"
            )
        if path[-1] == "_target_":
            _check_name(path, value)
    for name, group in GROUPS.items():
        settings = config.get(name)
        if not isinstance(settings, dict) or "_target_" not in settings:
            raise ValueError(f"{name} must be a mapping with a _target_, got {shown(settings)}")
        if group.is_partial and settings.get("_partial_") is not True:
            raise ValueError(f"{name}._partial_ must be true, got {settings.get('_partial_')!r}")


def check_factories(config: Config) -> None:
    """Raise ``ValueError`` for a ``_target_`` that is not a factory, or that lacks one of its settings.

    Call it after ``check_targets`` and before any instantiation. The factory must be defined in the module
    that the name has, or in a submodule: ``compressors.api.torch`` is not.
    """
    for path, value, settings in walk(config):
        if path[-1] == "_target_":
            assert isinstance(value, str) and isinstance(settings, dict)  # ``check_targets`` checks it
            _check_factory(path[:-1], value, settings)


def settings_of(config: Config, group: str) -> set[str]:
    """The optional settings of the part in ``group``; none if it cannot be imported."""
    settings = config.get(group)
    target = settings.get("_target_") if isinstance(settings, dict) else None
    try:
        _check_name((group, "_target_"), target)
        return {key for key, p in parameters_of(str(target)).items() if p.default is not p.empty}
    except (AttributeError, ImportError, TypeError, ValueError):
        return set()


def packages_of(config: Config) -> dict[str, str]:
    """The installed packages, other than this project, whose code a config names, with their versions."""
    named = [(_module(value), path[0]) for path, value, _ in walk(config) if path[-1] == "_target_"]
    theirs = [entry for entry in named if not is_ours(entry[0].partition(".")[0])]
    found = [installed.declaration_of(module, group) for module, group in theirs]
    return {each.distribution: each.version for each in sorted(filter(None, found))}


def modules_named(config: Config) -> set[str]:
    """The modules of all parts that a config names."""
    return {_module(value) for path, value, _ in walk(config) if path[-1] == "_target_"}


def walk(
    whole: Config | Sequence[object], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object, Config | Sequence[object]]]:
    """The path of every key and list entry in ``whole``, the entry, and the mapping or list that has it."""
    entries: Iterable[tuple[object, object]]
    entries = whole.items() if isinstance(whole, dict) else enumerate(whole)
    for key, entry in entries:
        here = (*path, str(key))
        yield here, entry, whole
        if isinstance(entry, (dict, list, tuple)):
            yield from walk(entry, here)


def _check_name(path: tuple[str, ...], value: object) -> None:
    where = ".".join(path)
    group = GROUPS.get(path[0])
    if group is None or len(path) < 2:
        raise ValueError(f"{where} has no effect: only {', '.join(GROUPS)} can have a _target_")
    place = group.place if "." in group.place else f"{group.place}.MODULE"
    rule = f"{where} must be {place}.NAME, a factory of this project"
    if path[0] in installed.GROUPS:
        rule += f" or of a module that an installed package declares in {installed.GROUPS[path[0]]}"
    public = all(part.isidentifier() and not part.startswith("_") for part in str(value).split("."))
    module = _module(value)
    if not public or not (_is_ours(module, group) or installed.declaration_of(module, path[0])):
        raise ValueError(f"{rule}, got {shown(value)}")


def _is_ours(module: str, group: Group) -> bool:
    """Whether a module is in the group's place; a top-level package itself is not."""
    return "." in module and f"{module}.".startswith(f"{group.place}.")


def _module(target: object) -> str:
    return str(target).rpartition(".")[0]


def named(target: str) -> Any:
    """What a target names. Raises whatever the import of its module raises."""
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(full_name(module)), name)


def parameters_of(target: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(named(target)).parameters


def _imported(module: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(full_name(module))
    except Exception as error:  # of any kind: an import runs the module's code
        files = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
        own = [f for f in files if f[0] not in (__file__, importlib.__file__) and "<frozen" not in f[0]]
        place = f" ({Path(own[-1][0]).name}, line {own[-1][1]})" if own else ""
        what = f"{type(error).__name__}: {error}{place}"
        raise ValueError(f"{where}: {module} cannot be imported: {what}") from error


def _check_factory(path: tuple[str, ...], target: str, settings: Config) -> None:
    group, owner, (module, _, name) = GROUPS[path[0]], ".".join(path), target.rpartition(".")
    where = f"{owner}._target_"
    found = getattr(_imported(module, where), name, None)
    is_factory = inspect.isfunction(found) or inspect.isclass(found)
    if found is None or not is_factory or not f"{found.__module__}.".startswith(f"{full_name(module)}."):
        raise ValueError(f"{where}: {module} defines no function or class {name}")
    makes = group.makes + (group.inside if len(path) > 1 else ())
    if makes and not any(hasattr(found, made) for made in makes):
        raise ValueError(f"{where}: {target} is not a {path[0]}: it has no {' or '.join(makes)}")
    parameters = {key: p for key, p in parameters_of(target).items() if key not in group.given}
    kinds = {p.kind for p in parameters.values()}
    if not _is_ours(module, group):  # only in our modules does a positional argument mark other functions
        kinds -= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    if not kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}:
        raise ValueError(f"{where}: {target} is not a factory: it must take its settings by keyword only")
    own = {"_target_", "_partial_"} if group.is_partial and len(path) == 1 else {"_target_"}
    unknown = sorted(map(str, settings.keys() - own - parameters.keys()))
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise ValueError(f"{owner}.{unknown[0]} has no effect: {target} has no such setting")
    required = {key for key, p in parameters.items() if p.default is p.empty and p.kind is p.KEYWORD_ONLY}
    missing = sorted(required - settings.keys())
    if missing and owner != "model":  # a model's other arguments come from the data
        raise ValueError(f"{owner}.{missing[0]} is missing: {target} needs it")
