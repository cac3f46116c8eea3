"""Installed packages with their own methods, models or data.

A package declares a module with its submodules by an entry point of one of ``GROUPS``. Only metadata are read
here; no package is imported.
"""

import importlib.util
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from hydra.core.config_search_path import ConfigSearchPath
from hydra.errors import ConfigCompositionException
from hydra.plugins.search_path_plugin import SearchPathPlugin

from trainers.names import is_ours

CONF = Path(__file__).resolve().parents[2] / "conf"
PACKAGES = "installed packages"  # provider of their configs in the search path
FOR_AGENTS = "sweeps/wandb"  # folder of files for W&B agents, which Hydra must not read

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
    """All declarations of this environment, by distribution.

    Raises ``ValueError`` for one that does not name a module.
    """
    found = []
    declared_here = metadata.entry_points()  # once: it reads the metadata of all packages
    for group, declared in GROUPS.items():
        for entry in declared_here.select(group=declared):
            assert entry.dist is not None  # of an installed package
            owner = f"{entry.dist.name} {entry.dist.version}"
            where = f"the entry point {entry.name} = {entry.value} in {declared} of {owner}"
            parts = entry.value.split(".")
            if not all(part.isidentifier() for part in parts):
                raise ValueError(f"{where} must name a module, as my_package or my_package.my_module")
            if is_ours(parts[0]):
                raise ValueError(f"{where} must not name {parts[0]}, which is a module of this project")
            found.append(Declaration(group, entry.value, entry.dist.name, entry.dist.version))
    return sorted(found, key=lambda declaration: declaration.distribution)


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


def config_names(group: str) -> set[str]:
    """The choices of a group, including its subfolders, of this project and of installed packages."""
    places = [CONF, *(folder.path for folder in config_folders())]
    files = [(place, file) for place in places for file in (place / group).rglob("*.yaml")]
    names = {file.relative_to(place / group).with_suffix("").as_posix() for place, file in files}
    return {name for name in names if not f"{group}/{name}".startswith(FOR_AGENTS)}


class PackagesPath(SearchPathPlugin):
    """Hydra's plugin that puts the configs of packages behind this project's in the search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Raise ``ConfigCompositionException`` for a config of a package with the name of another config."""
        try:
            folders = config_folders()
        except ValueError as error:
            raise ConfigCompositionException(str(error)) from error
        seen: dict[Path, Path] = {}
        for folder in folders:
            for file in sorted(folder.path.rglob("*.yaml")):
                name = file.relative_to(folder.path)
                other = CONF / name if (CONF / name).exists() else seen.setdefault(name, file)
                if other != file:
                    rule = f"there must be one config {name.with_suffix('')}"
                    raise ConfigCompositionException(f"{rule}, got {other} and {file} of {folder.owner}")
            search_path.append(PACKAGES, f"file://{folder.path}")


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
