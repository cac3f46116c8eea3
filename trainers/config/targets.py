"""Check of the ``_target_``s of a config: each must name a factory of its group.

A factory is in this project or in a module that an installed package declares for the group
(``installed.py``).
"""

import importlib
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, get_args, get_type_hints

import yaml

from trainers.config import installed
from trainers.files.plain import Config
from trainers.names import full_name

ROOT = Path(__file__).parents[2]


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
    "checkpoint": Group("trainers.checkpoint.saving"),
    "diagnostics": Group("trainers.diagnostics.settings"),
    "wire": Group("compressors.encoding.settings", makes=("is_coded",)),
    "tracker": Group("trainers.run.trackers", is_partial=True, given=("folder", "name", "config", "facts")),
}


def check_targets(config: Config) -> None:
    """Raise ``ValueError`` for a ``_target_`` outside the place of its group, at any depth of the config.

    Checks only names and the metadata of packages; imports nothing. Also refuses ``_args_`` and Hydra's other
    special keys, and texts that Hydra would interpolate at the instantiation.
    """
    for path, value, _ in _walk(config):
        where, key = ".".join(path), path[-1]
        for text in (key, value):
            if isinstance(text, str) and "${" in text:
                raise ValueError(f"{where} must not contain ${{...}} after resolution, got {text[:80]!r}")
        if key in ("_args_", "_recursive_", "_convert_"):
            raise ValueError(f"{where} must not be set in a config: factories take settings by keyword")
        if key == "_partial_":
            group = GROUPS.get(path[0])
            if len(path) != 2 or group is None or value is not group.is_partial:
                raise ValueError(f"{where} must not be changed by a config, got {value!r}")
        if key == "_target_":
            _check_name(path, value)
    for name, group in GROUPS.items():
        settings = config.get(name)
        if not isinstance(settings, dict) or "_target_" not in settings:
            raise ValueError(f"{name} must be a mapping with a _target_, got {_shown(settings)}")
        if group.is_partial and settings.get("_partial_") is not True:
            raise ValueError(f"{name}._partial_ must be true, got {settings.get('_partial_')!r}")


def check_factories(config: Config) -> None:
    """Raise ``ValueError`` for a ``_target_`` that is not a factory, or that lacks one of its settings.

    Call it after ``check_targets`` and before any instantiation. The factory must be defined in the module
    that the name has, or in a submodule: ``compressors.api.torch`` is not.
    """
    for path, value, settings in _walk(config):
        if path[-1] == "_target_":
            assert isinstance(value, str) and isinstance(settings, dict)  # ``check_targets`` checks it
            _check_factory(".".join(path), value, GROUPS[path[0]], settings)


def settings_of(config: Config, group: str) -> set[str]:
    """The optional settings of the part in ``group``; none if a config must not name it.

    Required arguments are not settings: those of a model come from the data.
    """
    settings = config.get(group)
    if group not in GROUPS or not isinstance(settings, dict) or "_target_" not in settings:
        return set()
    try:
        _check_name((group, "_target_"), settings["_target_"])
        _check_factory(f"{group}._target_", settings["_target_"], GROUPS[group], settings)
    except ValueError:
        return set()
    module, _, name = settings["_target_"].rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(full_name(module)), name)).parameters
    return {
        key for key, p in parameters.items() if p.default is not p.empty and key not in GROUPS[group].given
    }


def packages_of(config: Config) -> dict[str, str]:
    """The installed packages, other than this project, whose code a config names, with their versions."""
    found = {}
    for path, value, _ in _walk(config):
        group = GROUPS.get(path[0])
        if path[-1] != "_target_" or not isinstance(value, str) or group is None:
            continue
        if _is_ours(value.rpartition(".")[0], group):
            continue
        declared = installed.declaration_of(value.rpartition(".")[0], path[0])
        if declared is not None:
            found[declared.distribution] = declared.version
    return dict(sorted(found.items()))


def modules_named(config: Config) -> set[str]:
    """The modules of all parts that a config names."""
    return {
        value.rpartition(".")[0]
        for path, value, _ in _walk(config)
        if path[-1] == "_target_" and isinstance(value, str)
    }


def require_match(settings: Config, data: str, arguments: set[str]) -> None:
    """Raise ``ValueError`` for a model that does not take the ``arguments`` of this kind of data."""
    model = settings["_target_"]
    module, _, name = model.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(full_name(module)), name)).parameters
    if not arguments <= parameters.keys():
        fitting = ", ".join(_fitting_data(parameters))
        remedy = f"; data must be one of {fitting}" if fitting else ""
        own, theirs = (target.rpartition(".")[2] for target in (model, data))
        raise ValueError(f"{own} cannot be trained on the data of {theirs}{remedy}")
    decided = sorted(arguments & settings.keys())
    if decided:
        raise ValueError(f"model.{decided[0]} has no effect: the dataset sets this argument")


def _fitting_data(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The choices of conf/data whose default settings provide the arguments of a model.

    A dataset's class declares its arguments in the return type of ``model_arguments`` (``data.protocols``).
    """
    required = {name for name, p in parameters.items() if p.default is p.empty}
    found = []
    for path in sorted((ROOT / "conf/data").glob("*.yaml")):
        module, _, name = yaml.safe_load(path.read_text())["_target_"].rpartition(".")
        returned = get_type_hints(getattr(importlib.import_module(full_name(module)), name))["return"]
        default = (*get_args(returned), returned)[0]  # the first of several kinds
        provided = get_type_hints(get_type_hints(default.model_arguments)["return"]).keys()
        if required <= provided <= parameters.keys():
            found.append(path.stem)
    return found


def _walk(
    whole: Config | Sequence[object], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object, Config | Sequence[object]]]:
    """The path of every key and list entry in ``whole``, the entry, and the mapping or list that has it."""
    entries: Iterable[tuple[object, object]]
    entries = whole.items() if isinstance(whole, dict) else enumerate(whole)
    for key, entry in entries:
        here = (*path, str(key))
        yield here, entry, whole
        if isinstance(entry, (dict, list, tuple)):
            yield from _walk(entry, here)


def _check_name(path: tuple[str, ...], value: object) -> None:
    where = ".".join(path)
    group = GROUPS.get(path[0])
    if group is None or len(path) < 2:
        raise ValueError(f"{where} has no effect: only {', '.join(GROUPS)} can have a _target_")
    place = group.place if "." in group.place else f"{group.place}.MODULE"
    rule = f"{where} must be {place}.NAME, a factory of this project"
    if path[0] in installed.GROUPS:
        rule += f" or of a module that an installed package declares in {installed.GROUPS[path[0]]}"
    if not isinstance(value, str):
        raise ValueError(f"{rule}, got {_shown(value)}")
    parts = value.split(".")
    module = ".".join(parts[:-1])
    plain = all(part.isidentifier() and not part.startswith("_") for part in parts)
    if plain and _is_ours(module, group):
        file = "/".join(parts[:-1])
        if not (ROOT / f"{file}.py").is_file() and not (ROOT / file / "__init__.py").is_file():
            raise ValueError(f"{where}: there is no file {file}.py, got {value!r}")
    elif not plain or installed.declaration_of(module, path[0]) is None:
        raise ValueError(f"{rule}, got {_shown(value)}")


def _is_ours(module: str, group: Group) -> bool:
    """Whether a module is in the group's place; a top-level package itself is not."""
    return "." in module and f"{module}.".startswith(f"{group.place}.")


def _imported(module: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(full_name(module))
    except Exception as error:  # of any kind: an import runs the module's code
        ours = (__file__, importlib.__file__)
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in ours]
        own = [f"{Path(f.filename).name}, line {f.lineno}" for f in frames if "<frozen" not in f.filename]
        place = f" ({own[-1]})" if own else ""
        what = f"{type(error).__name__}: {error}{place}"
        raise ValueError(f"{where}: {module} cannot be imported: {what}") from error


def _check_factory(where: str, name: str, group: Group, settings: Config) -> None:
    module, _, attribute = name.rpartition(".")
    found = getattr(_imported(module, where), attribute, None)
    is_factory = inspect.isfunction(found) or inspect.isclass(found)
    if found is None or not is_factory or not f"{found.__module__}.".startswith(f"{full_name(module)}."):
        raise ValueError(f"{where}: {module} defines no function or class {attribute}")
    if module.startswith("compressors.core."):
        raise ValueError(f"{where}: {name} is not a compressor: compressors.core has only parts of methods")
    makes = group.makes + (group.inside if where.count(".") > 1 else ())
    if makes and not any(hasattr(found, made) for made in makes):
        raise ValueError(f"{where}: {name} is not a {where.split('.')[0]}: it has no {' or '.join(makes)}")
    parameters = _signature(found, where, name).parameters
    kinds = {p.kind for key, p in parameters.items() if key not in group.given}
    if not _is_ours(module, group):  # only in our modules does a positional argument mark other functions
        kinds -= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    if not kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}:
        raise ValueError(f"{where}: {name} is not a factory: it must take its settings by keyword only")
    owner = where.rpartition(".")[0]
    settable = parameters.keys() - group.given
    unknown = sorted(settings.keys() - {"_target_", "_partial_"} - settable)
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise ValueError(f"{owner}.{unknown[0]} has no effect: {name} has no such setting")
    required = (p for p in settable if parameters[p].default is parameters[p].empty)
    missing = sorted(
        p for p in required if parameters[p].kind is not inspect.Parameter.VAR_KEYWORD and p not in settings
    )
    if missing and owner != "model":  # a model's other arguments come from the data
        raise ValueError(f"{owner}.{missing[0]} is missing: {name} needs it")


def _signature(found: Callable[..., object], where: str, name: str) -> inspect.Signature:
    try:
        return inspect.signature(found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {name} is not a factory: {error}") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
