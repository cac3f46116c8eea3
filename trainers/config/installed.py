"""Installed packages with their own methods, models or data.

A package declares a module with its submodules by an entry point of one of ``GROUPS``. Only metadata are read
here; no package is imported.
"""

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from trainers.names import is_ours

GROUPS = {  # of a config, and of entry points
    "compressor": "total_error.compressors",
    "feedback": "total_error.feedback",
    "model": "total_error.models",
    "data": "total_error.data",
}


class Declaration(NamedTuple):
    """An entry point, and the distribution that declares it."""

    group: str  # of a config
    module: str
    distribution: str
    version: str


class ConfigFolder(NamedTuple):
    """The folder of a package's configs."""

    owner: str  # its distributions and their versions
    path: Path


def declarations() -> list[Declaration]:
    """All declarations of this environment. Raises ``ValueError`` for one that does not name a module."""
    return [found for name in sorted(_distributions()) for found in _declared_by(metadata.distribution(name))]


def declaration_of(module: str, group: str) -> Declaration | None:
    """The declaration that permits a config to name ``module`` in this group; None if there is none."""
    for found in declarations():
        if found.group == group and f"{module}.".startswith(f"{found.module}."):
            return found
    return None


def config_folders() -> list[ConfigFolder]:
    """The folders ``conf`` of the top-level packages that are declared.

    Raises ``ValueError`` for a missing package, for example after its sources were moved.
    """
    owners: dict[Path, list[str]] = {}
    for found in declarations():
        for place in _places(found):
            named = owners.setdefault(place / "conf", [])
            owner = f"{found.distribution} {found.version}"
            if owner not in named:
                named.append(owner)
    return [ConfigFolder(" and ".join(named), path) for path, named in owners.items() if path.is_dir()]


def _distributions() -> set[str]:
    """Names of the distributions with entry points in one of ``GROUPS``; others are not examined."""
    found = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
        except (OSError, UnicodeError):
            continue
        if any(group in text for group in GROUPS.values()):
            if not distribution.metadata["Name"]:
                raise ValueError(
                    f"an installed package has entry points for this project but no name: {text!r}"
                )
            found.add(distribution.metadata["Name"])
    return found


def _declared_by(distribution: metadata.Distribution) -> Iterator[Declaration]:
    configs = {declared: group for group, declared in GROUPS.items()}
    version = distribution.version or "without a version"
    owner = f"{distribution.name} {version}"
    try:
        entries = distribution.entry_points
    except TypeError as error:  # for a line without =
        raise ValueError(f"the entry points of {owner} must be lines of NAME = MODULE") from error
    for entry in entries:
        if entry.group not in configs:
            continue
        where = f"the entry point {entry.name} = {entry.value} in {entry.group} of {owner}"
        parts = entry.value.split(".")
        if not all(part.isidentifier() for part in parts):
            raise ValueError(f"{where} must name a module, as my_package or my_package.my_module")
        if is_ours(parts[0]):
            raise ValueError(f"{where} must not name {parts[0]}, which is a module of this project")
        yield Declaration(configs[entry.group], entry.value, distribution.name, version)


def _places(declaration: Declaration) -> list[Path]:
    """The folders of the top-level package, none for a module; no code of it is executed."""
    name = declaration.module.split(".")[0]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        owner = f"{declaration.distribution} {declaration.version}"
        raise ValueError(
            f"{owner} declares {declaration.module} in {GROUPS[declaration.group]}, but there is no "
            f"module {name}: install it again or uninstall it"
        )
    return [Path(place) for place in spec.submodule_search_locations or ()]
