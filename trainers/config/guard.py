"""Limits on untrusted config files: they must not run code or read secrets.

Hydra imports the packages of a search path and instantiates what the ``hydra`` section of a config names
(callbacks, launcher, logging) before a program sees the config. So this stands where Hydra loads configs, in
every process that does. Files that Hydra, OmegaConf or YAML do not expect raise one of Hydra's errors.
"""

import os
import re
import warnings
from pathlib import Path
from typing import Any

import hydra
import hydra._internal.hydra
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import ConfigSearchPath, SearchPathElement
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import ConfigDefault, GroupDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from trainers.config import nearest, old_names, sweep_jobs
from trainers.config import yaml_loader as config_yaml
from trainers.config.installed import config_folders

ENVIRONMENT = ("DATA_DIR",)  # what ${oc.env:...} may read; other variables hold keys and passwords
OWN = {  # of conf/config.yaml
    "run": {"dir": "."},
    "sweep": {"dir": "${output}/.multirun", "subdir": "."},
    "callbacks": {"jobs": {"_target_": "run.StartOfSweep"}},
    "output_subdir": None,
}
OWN_LOGGING = {"version": 1, "root": None, "disable_existing_loggers": False}  # Hydra's none.yaml
HARMLESS = ("help", "hydra_help", "env")  # texts
LOGGING = ("hydra_logging", "job_logging")
PLUGINS = ("launcher", "sweeper")
CODE_OF_PLUGINS = ("hydra._internal.core_plugins.", "hydra_plugins.")


_hydras_apply_overrides = ConfigLoaderImpl._apply_overrides_to_config
CONF = Path(__file__).resolve().parents[2] / "conf"
MOST_VALUES = 10_000  # of all files of a config, those of a file that is named twice counted twice


class GuardedRepository(CachingConfigRepository):
    """Hydra's reader of config files. Raises ``ConfigCompositionException`` for those that cannot be read,
    for defaults lists that choose something of Hydra's, and when there is no end to what files include.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.values = 0
        self.sizes: dict[str, int] = {}

    def load_config(self, config_path: str) -> Any:
        found = self._read(config_path)
        group, _, name = config_path.partition("/")
        if found is None and group == "sweeps" and name in old_names.SWEEPS:
            raise ConfigCompositionException(f"+sweeps={name} is +sweeps={old_names.SWEEPS[name]} now")
        if found is not None:
            if config_path not in self.sizes:
                self.sizes[config_path] = 1 + config_yaml.size(found.config)
            self.values += self.sizes[config_path]
        if self.values > 3 * MOST_VALUES:  # Hydra asks three times for each file
            raise ConfigCompositionException(
                f"the files of a config must come to at most {MOST_VALUES} values, those of a file that is "
                f"named twice counted twice; too many with {config_path!r}"
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
                f"config file {config_path!r}: {config_yaml.said(error)}"
            ) from None
        except Exception as error:  # Hydra and OmegaConf raise many kinds for files that they do not expect
            raise ConfigCompositionException(f"config file {config_path!r}: {error}") from None
        if found is not None and not _is_trusted(found.path):
            for default in found.defaults_list:
                _check_default(default, config_path)
        return found


class GuardedLoader(ConfigLoaderImpl):
    """Hydra's loader of configs, those of installed packages too (``trainers/config/installed.py``).

    Raises ``ConfigCompositionException`` for configs that could run code.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        add_packages(config_search_path)
        super().__init__(config_search_path)

    def load_configuration(self, *arguments: Any, **named: Any) -> DictConfig:
        config_yaml.begin()
        try:
            with warnings.catch_warnings(record=True) as warned:  # of a config that is not refused
                config = super().load_configuration(*arguments, **named)
        except RecursionError:
            raise ConfigCompositionException("a config must not include or refer to itself") from None
        except MissingConfigException as error:
            if error.missing_cfg_file is None or not error.options:
                raise
            options = {*error.options, *config_names(error.missing_cfg_file.partition("/")[0])}
            said = nearest.refusal_of_choice(error.missing_cfg_file, options)
            raise ConfigCompositionException(said) from None
        for warning in warned:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        check_named_code(OmegaConf.to_container(config.hydra, resolve=False))
        return config

    def _parse_overrides_and_create_caching_repo(self, config_name: str | None, overrides: list[str]) -> Any:
        typed = OverridesParser.create().parse_overrides(overrides=overrides)
        repository = GuardedRepository(self.repository)
        for override in typed:
            _check_choice(override, repository)
        self._process_config_searchpath(config_name, typed, repository)
        return typed, repository

    def _process_config_searchpath(self, config_name: str | None, typed: Any, repo: Any) -> None:
        """Build the search path, which imports the packages on it: none that a file names."""
        loaded = None if config_name is None else repo.load_config(config_name)
        config = loaded.config if loaded is not None else None
        if OmegaConf.is_dict(config) and OmegaConf.select(config, "hydra.searchpath") is not None:
            _refuse("set hydra.searchpath")
        super()._process_config_searchpath(config_name, typed, repo)

    def _compose_config_from_defaults_list(self, defaults: Any, repo: Any) -> DictConfig:
        """What the files say, before what was typed on the command line."""
        config = super()._compose_config_from_defaults_list(defaults, repo)
        if not OmegaConf.is_dict(config.hydra):
            _refuse("set hydra")
        check_files(OmegaConf.to_container(config.hydra, resolve=False), {d.config_path for d in defaults})
        return config


def apply_overrides(overrides: list[Override], config: DictConfig) -> None:
    """Hydra's own way to apply what was typed, with a refusal that names the nearest setting."""
    for override in overrides:
        try:
            _hydras_apply_overrides([override], config)
        except ConfigCompositionException as error:
            if not isinstance(error.__cause__, (ConfigAttributeError, ConfigKeyError)):
                raise
            plain = OmegaConf.to_container(config, resolve=False)
            word = override.input_line or override.key_or_group
            said = nearest.refusal_of_setting(override.key_or_group, word, plain)
            raise ConfigCompositionException(said) from None


def config_names(group: str) -> set[str]:
    """The choices of a group, those in folders below it too, of this project and of installed packages."""
    places = [CONF, *(folder.path for folder in config_folders())]
    files = [(place / group, file) for place in places for file in (place / group).rglob("*.yaml")]
    return {file.relative_to(place).with_suffix("").as_posix() for place, file in files}


def add_packages(search_path: ConfigSearchPath) -> None:
    """Put the configs of installed packages behind this project's.

    Raises ``ConfigCompositionException`` where one of these has the name of one of ours or of another
    package's: the name alone would not tell which is meant.
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


def check_files(section: dict[str, Any], chosen: set[str]) -> None:
    """Raise for a ``hydra`` section of config files that says more than which runs a sweep has.

    ``chosen`` are the configs it is made of, of which ``hydra/launcher/NAME`` and its like were typed.
    """
    from hydra.conf import HydraConf

    usual = OmegaConf.to_container(OmegaConf.structured(HydraConf), resolve=False)
    own = Path(hydra.__file__).parent / "conf/hydra/output/default.yaml"  # under --hydra-help, without ours
    hydras = OmegaConf.to_container(OmegaConf.load(own), resolve=False)
    for key, value in section.items():
        if key in HARMLESS:
            continue
        names = [path.split("/")[2] for path in chosen if path.startswith(f"hydra/{key}/")]
        if key in LOGGING:
            allowed = any(_is_hydras_own(key, value, name) for name in names)
        elif key in PLUGINS:
            value = dict(value or {})
            _check_sweep(value.pop("params", None) if key == "sweeper" else None)
            allowed = value in [_registered(key, name) for name in names]
        else:
            allowed = value in [known[key] for known in (usual, hydras, OWN) if key in known]
        if not allowed:
            _refuse(f"set hydra.{key}")


def check_named_code(section: dict[str, Any]) -> None:
    """Raise for a callback, launcher or sweeper, also a typed one, that is neither ours nor Hydra's."""
    for name in (*PLUGINS, "callbacks"):
        for target in _targets(section.get(name)):
            plugin = isinstance(target, str) and target.startswith(CODE_OF_PLUGINS)
            if target != "run.StartOfSweep" and not (plugin and name in PLUGINS):
                raise ConfigCompositionException(f"hydra.{name} must not name code, got {target!r}")
    for name in LOGGING:
        if not _is_hydras_own(name, section.get(name), "*"):
            raise ConfigCompositionException(f"hydra.{name} must be one of Hydra's own: hydra/{name}=default")


def install() -> None:
    """Stand where Hydra and OmegaConf look; once per process, before a config is composed."""
    hydra._internal.hydra.ConfigLoaderImpl = GuardedLoader
    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(apply_overrides)
    config_yaml.install()
    sweep_jobs.install()
    OmegaConf.register_new_resolver("oc.env", environment_variable, replace=True)


def options_first(words: list[str]) -> list[str]:
    """The words with options before overrides, as Hydra wants them; ``-m`` is left out beside ``--cfg``.

    Raises ``ValueError`` for options that Hydra does not know, and for the one that opens a pickle.
    """
    parser = get_args_parser()

    def refuse(message: str) -> None:
        raise ValueError(f"{message}; --help lists what there is")

    parser.error = refuse  # in place of argparse's page on how it is used
    parsed = parser.parse_intermixed_args(words)
    if parsed.experimental_rerun is not None:
        raise ValueError("--experimental-rerun is not for use: it opens a pickle, which can run code")
    options = list(words)
    for override in parsed.overrides:
        options.remove(override)
    if parsed.cfg is not None:
        options = [word for word in options if word not in ("-m", "--multirun")]
    return [*options, *parsed.overrides]


def environment_variable(name: str, default: Any = "") -> Any:
    """The variable ``name``, or ``default`` where there is one and the variable is not set.

    Raises ``ValueError`` for a name not in ``ENVIRONMENT`` and without a value.
    """
    if name not in ENVIRONMENT:
        raise ValueError(f"configs may read {', '.join(ENVIRONMENT)} of the environment, not {name}")
    if name in os.environ:
        return os.environ[name]
    if default == "":
        raise ValueError(f"the environment has no {name}")
    return default


def _refuse(what: str) -> None:
    raise ConfigCompositionException(
        f"a config file must not {what}: it can run code; type it on the command line"
    )


def _is_trusted(source: str) -> bool:
    """Whether a config comes from this project's files, from Hydra's or from an installed plugin."""
    if source.startswith("file://"):
        return Path(source.removeprefix("file://")).resolve() == CONF
    return source.startswith("structured://") or source == "pkg://hydra.conf"


def _check_default(default: ConfigDefault | GroupDefault, config_path: str) -> None:
    """Raise for an entry of a defaults list that names something of Hydra's, or puts something there."""
    named = default.group if isinstance(default, GroupDefault) else default.path
    if "hydra" in re.split(r"[/@.:]", f"{named}@{default.package}"):
        _refuse(f"choose {named} in its defaults, as {config_path!r} does")


def _check_choice(override: Override, repository: GuardedRepository) -> None:
    """Raise for a choice of a group that is no text, as false is not."""
    group = override.key_or_group
    if override.is_delete() or override.is_sweep_override() or isinstance(override.value(), (str, list)):
        return
    options = repository.get_group_options(group)
    if options and not isinstance(override.value(), dict):
        got = (override.input_line or "").partition("=")[2]
        near = ["none"] if not override.value() and "none" in options else []
        said = f"{group} must be one of {', '.join(options)}, got {got}"
        raise ConfigCompositionException(said + nearest.question(f"{group}={name}" for name in near))


def _check_sweep(params: Any) -> None:
    for key in params or {}:
        if re.findall(r"\w+", str(key))[:1] == ["hydra"]:
            raise ConfigCompositionException(f"a config file must not sweep over {key}")


def _is_hydras_own(key: str, value: object, name: str) -> bool:
    """Whether these logging settings are those of the file of that name, or of any, that comes with Hydra."""
    if value == OWN_LOGGING and name in ("none", "*"):
        return True
    files = (Path(hydra.__file__).parent / "conf" / "hydra" / key).glob("*.yaml")
    own = (file for file in files if name in (file.stem, "*"))
    return any(OmegaConf.to_container(OmegaConf.load(file)) == value for file in own)


def _registered(key: str, name: str) -> Any:
    """The settings of an installed launcher or sweeper as its plugin registers them."""
    store = ConfigStore.instance()
    if f"{name}.yaml" not in store.list(f"hydra/{key}"):
        return None
    node = OmegaConf.to_container(OmegaConf.structured(store.load(f"hydra/{key}/{name}.yaml").node))
    node.pop("params", None)
    return node


def _targets(value: Any) -> list[Any]:
    if isinstance(value, dict):
        here = [value["_target_"]] if "_target_" in value else []
        return here + [target for entry in value.values() for target in _targets(entry)]
    if isinstance(value, list):
        return [target for entry in value for target in _targets(entry)]
    return []
