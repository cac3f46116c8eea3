"""Limits on untrusted config files: they must not run code or read secrets.

Hydra imports the packages of a search path and instantiates the callbacks, launcher and logging that the
``hydra`` section of a config names, before a program gets the config. These checks are therefore installed in
Hydra's loader of configs, in every process that uses it. All of them raise one of Hydra's errors.
"""

import copy
import os
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
import hydra._internal.hydra
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.hydra import Hydra
from hydra.core.config_search_path import ConfigSearchPath, SearchPathElement
from hydra.core.default_element import ConfigDefault, GroupDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from trainers.config import help_page, nearest, sweep_jobs
from trainers.config import yaml_loader as config_yaml
from trainers.config.hydra_section import check_files, check_named_code, refuse
from trainers.config.installed import config_folders
from trainers.names import full_name

ENVIRONMENT = ("DATA_DIR",)  # variables that ${oc.env:...} may read; others may contain keys and passwords
CONF = Path(__file__).resolve().parents[2] / "conf"
MOST_VALUES = 10_000  # in all files of a config; a file that is named twice counts twice
FOR_AGENTS = "sweeps/wandb"  # folder of files for W&B agents, which Hydra must not read
_hydras_apply_overrides = ConfigLoaderImpl._apply_overrides_to_config
_hydras_mode = Hydra.get_mode


@dataclass
class _Composition:
    """The composition in progress."""

    is_sweep: bool = False  # of a whole sweep, not of one of its jobs
    swept: set[str] = field(default_factory=set)  # keys of its sweep overrides


_current = _Composition()


class GuardedRepository(CachingConfigRepository):
    """Hydra's reader of config files, with limits.

    Raises ``ConfigCompositionException`` for files that cannot be read, for defaults lists that choose a part
    of Hydra, and for files with too many values together.
    """

    def __init__(self, delegate: IConfigRepository) -> None:
        # Hydra's constructor also copies all sources, which took two thirds of the time of --help. Here the
        # copies share them: a new search path replaces the list of sources and changes none.
        self.delegate = copy.copy(delegate)
        self.cache: dict[str, Any] = {}
        self.values = 0
        self.sizes: dict[str, int] = {}

    def load_config(self, config_path: str) -> Any:
        found = self._read(config_path)
        if found is not None and config_path.startswith(f"{FOR_AGENTS}/"):
            raise ConfigCompositionException(
                f"{config_path} is for the agents of Weights & Biases: use wandb sweep {config_path}.yaml"
            )
        if found is not None:
            if config_path not in self.sizes:
                self.sizes[config_path] = 1 + config_yaml.size(found.config)
            self.values += self.sizes[config_path]
        if self.values > 3 * MOST_VALUES:  # Hydra reads each file three times
            raise ConfigCompositionException(
                f"the files of a config must have at most {MOST_VALUES} values together, and a file that is "
                f"named twice counts twice; {config_path!r} exceeds the limit"
            )
        return found

    def _read(self, config_path: str) -> Any:
        if f"config_path={config_path}" in self.cache:
            return super().load_config(config_path)
        try:
            found = super().load_config(config_path)
        except HydraException:
            raise
        except yaml.YAMLError as error:
            raise ConfigCompositionException(
                f"config file {config_path!r}: {config_yaml.message_of(error)}"
            ) from None
        except Exception as error:  # Hydra and OmegaConf raise many kinds for malformed files
            raise ConfigCompositionException(f"config file {config_path!r}: {error}") from None
        if found is not None and not _is_trusted(found.path):
            for default in found.defaults_list:
                _check_default(default, config_path)
        return found

    def get_group_options(
        self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG
    ) -> list[str]:
        found = super().get_group_options(group_name, results_filter)
        return [name for name in found if not f"{group_name}/{name}".startswith(FOR_AGENTS)]


class GuardedLoader(ConfigLoaderImpl):
    """Hydra's loader of configs, including those of installed packages (``trainers/config/installed.py``).

    Raises ``ConfigCompositionException`` for configs that could run code.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        add_packages(config_search_path)
        self.composed: list[tuple[str, str]] = []  # names and packages of the files of the last config
        super().__init__(config_search_path)

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *rest: Any, **named: Any
    ) -> DictConfig:
        config_yaml.begin()
        _current.is_sweep = run_mode == RunMode.MULTIRUN
        _current.swept.clear()
        try:
            with warnings.catch_warnings(record=True) as warned:  # shown below, unless the config is refused
                config = super().load_configuration(config_name, overrides, run_mode, *rest, **named)
        except RecursionError:
            raise ConfigCompositionException("a config must not include or refer to itself") from None
        except MissingConfigException as error:
            if error.missing_cfg_file is None or not error.options:
                raise
            group = "/".join(error.missing_cfg_file.split("/")[: nearest.depth(error.missing_cfg_file)])
            options = {*error.options, *config_names(group)}
            message = nearest.refusal_of_choice(error.missing_cfg_file, options)
            raise ConfigCompositionException(message) from None
        for warning in warned:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        check_named_code(OmegaConf.to_container(config.hydra, resolve=False))
        with flag_override(config.hydra, ["struct", "readonly"], False):
            for callback in (config.hydra.get("callbacks") or {}).values():
                callback._target_ = full_name(callback._target_)
        return config

    def _parse_overrides_and_create_caching_repo(self, config_name: str | None, overrides: list[str]) -> Any:
        typed = OverridesParser.create().parse_overrides(overrides=overrides)
        repository = GuardedRepository(self.repository)
        for override in typed:
            _check_choice(override, repository)
            if override.is_sweep_override():
                _current.swept.add(override.key_or_group)
        self._process_config_searchpath(config_name, typed, repository)
        return typed, repository

    def _process_config_searchpath(self, config_name: str | None, typed: Any, repo: Any) -> None:
        """Build the search path, whose packages Hydra imports; config files must not name any."""
        loaded = None if config_name is None else repo.load_config(config_name)
        config = loaded.config if loaded is not None else None
        if OmegaConf.is_dict(config) and OmegaConf.select(config, "hydra.searchpath") is not None:
            refuse("set hydra.searchpath")
        super()._process_config_searchpath(config_name, typed, repo)

    def _compose_config_from_defaults_list(self, defaults: Any, repo: Any) -> DictConfig:
        """The config of the files, before the overrides of the command line."""
        self.composed = [(default.config_path, default.package or "") for default in defaults]
        config = super()._compose_config_from_defaults_list(defaults, repo)
        if not OmegaConf.is_dict(config.hydra):
            refuse("set hydra")
        check_files(OmegaConf.to_container(config.hydra, resolve=False), {d.config_path for d in defaults})
        return config


def apply_overrides(overrides: list[Override], config: DictConfig) -> None:
    """Hydra's function that applies overrides, with a refusal that names the nearest setting.

    In a sweep over a group, this config has the group's default choice, which may lack a setting that the
    choices of the jobs have. The setting is not refused then: ``sweep_jobs`` gives settings of compressors to
    those that have them, and composes each job before the first one starts.
    """
    params = OmegaConf.select(config, "hydra.sweeper.params") or {}
    swept = _current.swept | params.keys() if _current.is_sweep else set()
    for override in overrides:
        try:
            _hydras_apply_overrides([override], config)
        except ConfigCompositionException as error:
            if not isinstance(error.__cause__, (ConfigAttributeError, ConfigKeyError)):
                raise
            if {"experiment", override.key_or_group.partition(".")[0]} & swept:
                continue
            plain = OmegaConf.to_container(config, resolve=False)
            word = override.input_line or override.key_or_group
            message = nearest.refusal_of_setting(override.key_or_group, word, plain)
            raise ConfigCompositionException(message) from None


def typed_mode(self: Hydra, config_name: str | None, overrides: list[str]) -> RunMode | None:
    """Hydra's mode if an override may set it; otherwise None, which avoids composing the config for it.

    A config file cannot set the mode (``check_files``).
    """
    is_set = any(re.match(r"[+~]*hydra(\.mode)?\b(?![./])", word) for word in overrides)
    return _hydras_mode(self, config_name, overrides) if is_set else None


def config_names(group: str) -> set[str]:
    """The choices of a group, including its subfolders, of this project and of installed packages."""
    places = [CONF, *(folder.path for folder in config_folders())]
    files = [(place / group, file) for place in places for file in (place / group).rglob("*.yaml")]
    names = {file.relative_to(place).with_suffix("").as_posix() for place, file in files}
    return {name for name in names if not f"{group}/{name}".startswith(FOR_AGENTS)}


def add_packages(search_path: ConfigSearchPath) -> None:
    """Add the configs of installed packages to the search path, after this project's.

    Raises ``ConfigCompositionException`` if two packages, or a package and this project, have a config of the
    same name.
    """
    path = search_path.get_path()
    place = 1 + max(
        (i for i, element in enumerate(path) if element.provider in ("hydra", "main")), default=-1
    )
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
        path.insert(place, SearchPathElement(folder.owner, f"file://{folder.path}"))
        place += 1


def install() -> None:
    """Replace Hydra's loader, its help page and OmegaConf's YAML reader; once per process."""
    hydra._internal.hydra.ConfigLoaderImpl = GuardedLoader
    Hydra.get_mode = typed_mode
    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(apply_overrides)
    config_yaml.install()
    sweep_jobs.install()
    help_page.install()
    OmegaConf.register_new_resolver("oc.env", environment_variable, replace=True)


def environment_variable(name: str, default: Any = "") -> Any:
    """The environment variable ``name`` or, if it is not set, ``default``.

    Raises ``ValueError`` for a name that is not in ``ENVIRONMENT``, and if there is neither a variable nor a
    default.
    """
    if name not in ENVIRONMENT:
        known = ", ".join(ENVIRONMENT)
        raise ValueError(f"a config may only read these environment variables: {known}; got {name}")
    if name in os.environ:
        return os.environ[name]
    if default == "":
        raise ValueError(f"the environment variable {name} is not set")
    return default


def _is_trusted(source: str) -> bool:
    """Whether a config comes from this project's files, from Hydra's or from an installed plugin."""
    if source.startswith("file://"):
        return Path(source.removeprefix("file://")).resolve() == CONF
    return source.startswith("structured://") or source == "pkg://hydra.conf"


def _check_default(default: ConfigDefault | GroupDefault, config_path: str) -> None:
    """Raise for an entry of a defaults list that chooses or fills a group of Hydra's own."""
    named = default.group if isinstance(default, GroupDefault) else default.path
    if "hydra" in re.split(r"[/@.:]", f"{named}@{default.package}"):
        refuse(f"choose {named} in its defaults, as {config_path!r} does")


def _check_choice(override: Override, repository: GuardedRepository) -> None:
    """Raise for a choice of a group that is not a text, such as false."""
    group = override.key_or_group
    if override.is_delete() or override.is_sweep_override() or isinstance(override.value(), (str, list)):
        return
    options = repository.get_group_options(group)
    if options and not isinstance(override.value(), dict):
        got = (override.input_line or "").partition("=")[2]
        near = ["none"] if not override.value() and "none" in options else []
        message = f"{group} must be one of {', '.join(options)}, got {got}"
        raise ConfigCompositionException(message + nearest.question(f"{group}={name}" for name in near))
