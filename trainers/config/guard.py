"""Hydra's loader of configs with this project's refusals, and the configs of installed packages.

A config file of somebody else must not import code. Hydra imports the packages of ``hydra.searchpath`` and
the classes that the ``hydra`` section names before a program gets its config, so these are refused where
Hydra reads a file.
"""

import copy
import re
from pathlib import Path
from typing import Any, NoReturn

import hydra._internal.hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, MissingConfigException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from trainers.config import help_page, nearest, sweep_jobs
from trainers.config.installed import CONF, FOR_AGENTS, PACKAGES, PackagesPath
from trainers.identity.identity import flatten
from trainers.names import full_name

# Of conf/config.yaml
_OWN_CALLBACK = ("hydra.callbacks.jobs._target_", "trainers.config.searches.StartOfSweep")
_HARMLESS = re.compile(  # texts, folders and what a sweep crosses
    r"hydra\.(output_subdir|(help|hydra_help|run|sweep)\..*|sweeper\.params\.(?!\W*hydra\b|.*_target_).*)",
    re.DOTALL,
)
_CROSSED = "hydra.sweeper.params."
_OF_HYDRA = ("hydra/config", "hydra/output/default")  # Hydra's own files for the whole section


class _Repository(ConfigRepository):
    """Hydra's reader of files. Its copies share their sources, which halves the time of --help."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Repository":
        return copy.copy(self)


class GuardedLoader(ConfigLoaderImpl):
    """Hydra's loader of configs.

    Raises ``ConfigCompositionException`` for configs that could import code, and for misspelt settings and
    choices, with the nearest name.
    """

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.repository = _Repository(config_search_path)

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        if not validate_sweep_overrides and not any(re.match(r"[+~]*hydra(\.mode)?=", w) for w in overrides):
            raise ConfigCompositionException("no mode is typed")  # Hydra asks for it; only words can set it
        options = (run_mode, from_shell, validate_sweep_overrides)
        try:
            config = super().load_configuration(config_name, overrides, *options)
        except RecursionError:
            raise ConfigCompositionException("a config must not include or refer to itself") from None
        except MissingConfigException as error:
            if error.missing_cfg_file is None or not error.options:
                raise
            message = nearest.refusal_of_choice(error.missing_cfg_file, error.options)
            raise ConfigCompositionException(message) from None
        except ConfigCompositionException as error:
            if not isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError):
                raise
            missing = f"{error.__cause__.full_key}."
            typed = OverridesParser.create().parse_overrides(overrides)
            unknown = next((o for o in typed if f"{o.key_or_group}.".startswith(missing)), None)
            if unknown is None:
                raise
            key, word = unknown.key_or_group, str(unknown.input_line)
            config = self.load_configuration(config_name, [w for w in overrides if w != word], *options)
            swept = {override.key_or_group for override in typed if override.is_sweep_override()}
            swept |= (OmegaConf.select(config, "hydra.sweeper.params") or {}).keys()
            if run_mode != RunMode.MULTIRUN or not {"experiment", key.partition(".")[0]} & swept:
                plain: Any = OmegaConf.to_container(config, resolve=False)
                message = nearest.refusal_of_setting(key, word, plain)
                raise ConfigCompositionException(message) from None
            # This config has the group's default choice. ``sweep_jobs`` checks the setting for each job.
            config.hydra.overrides.task = [o.input_line for o in typed if not o.is_hydra_override()]
        with flag_override(config.hydra, ["struct", "readonly"], False):
            for callback in (config.hydra.get("callbacks") or {}).values():
                callback._target_ = full_name(callback._target_)
        return config

    def _process_config_searchpath(self, config_name: str | None, typed: list[Override], repo: Any) -> None:
        """Build the search path, whose packages Hydra imports; config files must not name any."""
        loaded = None if config_name is None else repo.load_config(config_name)
        config: Any = None if loaded is None else loaded.config
        if OmegaConf.is_dict(config) and OmegaConf.select(config, "hydra.searchpath") is not None:
            _refuse("hydra.searchpath")
        super()._process_config_searchpath(config_name, typed, repo)
        for override in typed:
            plain = not override.is_delete() and not override.is_sweep_override()
            if plain and not isinstance(override.value(), str | list | dict):
                options = repo.get_group_options(override.key_or_group)
                if options:
                    raise ConfigCompositionException(nearest.refusal_of_value(override, options))

    def _load_single_config(self, default: ResultDefault, repo: Any) -> ConfigResult:
        name, found = str(default.config_path), super()._load_single_config(default, repo)
        if name.startswith(f"{FOR_AGENTS}/"):
            rule = f"is for the agents of Weights & Biases: use wandb sweep {name}.yaml"
            raise ConfigCompositionException(f"{name} {rule}")
        content: Any = OmegaConf.to_container(found.config, resolve=False)
        scheme, _, folder = found.path.rpartition("://")
        if scheme in ("", "file") and found.provider != PACKAGES and Path(folder).resolve() != CONF:
            _check_section(content)
        elif "hydra" in content and not _is_in_its_place(name, default.package or ""):
            _refuse(str(default.package))
        return found


def install() -> None:
    """Give Hydra this loader, the configs of packages, and the help page; once per process."""
    hydra._internal.hydra.ConfigLoaderImpl = GuardedLoader  # type: ignore[misc]
    Plugins.instance().register(PackagesPath)
    sweep_jobs.install()
    help_page.install()


def _check_section(content: Any) -> None:
    """Raise if somebody else's file sets more of Hydra's section than ``_HARMLESS``."""
    section = {"hydra": content["hydra"]} if "hydra" in content else {}
    for key, value in flatten(section):
        harmless = _HARMLESS.fullmatch(key) and (not key.startswith(_CROSSED) or _is_plain(value))
        if not harmless and (key, value) != _OWN_CALLBACK:
            _refuse(key)


def _is_plain(value: object) -> bool:
    """Whether a value cannot be or contain a mapping, whose ``_target_`` Hydra would call."""
    entries = value if isinstance(value, (list, tuple)) else [value]
    return all(not isinstance(e, (dict, list, tuple)) and "${" not in str(e) for e in entries)


def _is_in_its_place(name: str, package: str) -> bool:
    """Whether one of our or Hydra's files is where it belongs: below ``hydra`` it could take over settings.

    Hydra calls the ``_target_``s there with settings that refer to other parts, which anybody may set.
    """
    group = "hydra" if name in _OF_HYDRA else name.rpartition("/")[0].replace("/", ".")
    return package in ("", "_global_", group)


def _refuse(key: str) -> NoReturn:
    raise ConfigCompositionException(
        f"a config file must not set {key}, because that can run code: use the command line instead"
    )
