"""Checks of the ``hydra`` section of a config, which can name code: launcher, sweeper, callbacks, logging."""

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

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
PRESETS = Path(__file__).resolve().parents[2] / "conf/hydra"  # of this project, trusted as its code is
CONF_OF_HYDRA = Path(hydra.__file__).parent / "conf" / "hydra"
# Classes of plugins. The capital letter excludes modules, such as those that a plugin imports.
CODE_OF_PLUGINS = re.compile(
    r"((hydra\._internal\.core_plugins|hydra_plugins)(\.\w+)+|optuna\.samplers)\.[A-Z]\w*"
)


def check_files(section: dict[str, Any], chosen: set[str]) -> None:
    """Raise for a ``hydra`` section of config files that sets more than the parameters of a sweep.

    ``chosen`` are the names of its configs. Those of Hydra's groups, such as ``hydra/launcher/NAME``, are
    permitted, because only the command line can choose them.
    """
    for key, value in section.items():
        if key in HARMLESS:
            continue
        names = [path.split("/")[2] for path in chosen if path.startswith(f"hydra/{key}/")]
        if key in LOGGING:
            allowed = any(_is_hydras_own(key, value, name) for name in names)
        elif key in PLUGINS:
            value = dict(value or {})
            _check_sweep(value.pop("params", None) if key == "sweeper" else None)
            allowed = value in [_registered(key, name, chosen) or _preset(key, name) for name in names]
        else:
            allowed = value in [known[key] for known in (*_hydras_defaults(), OWN) if key in known]
        if not allowed:
            refuse(f"set hydra.{key}")


def check_named_code(section: dict[str, Any]) -> None:
    """Raise for a callback, launcher or sweeper, also from the command line, that is not ours or Hydra's.

    Raise also for a missing launcher or sweeper, with which a sweep would start no job.
    """
    for name in PLUGINS:
        if name in section and section[name] is None:
            raise ConfigCompositionException(
                f"hydra.{name} must not be null: choose hydra/{name}=NAME or leave it out"
            )
    for name in (*PLUGINS, "callbacks"):
        for target in _targets(section.get(name)):
            plugin = isinstance(target, str) and CODE_OF_PLUGINS.fullmatch(target) is not None
            if target != "run.StartOfSweep" and not (plugin and name in PLUGINS):
                raise ConfigCompositionException(f"hydra.{name} must not name code, got {target!r}")
    space = (section.get("sweeper") or {}).get("custom_search_space")  # a function, in the Optuna sweeper
    if space is not None:
        raise ConfigCompositionException(f"hydra.sweeper must not name code, got {space!r}")
    for name in LOGGING:
        if not _is_hydras_own(name, section.get(name), "*"):
            raise ConfigCompositionException(f"hydra.{name} must be one of Hydra's own: hydra/{name}=default")


def refuse(what: str) -> NoReturn:
    """Raise ``ConfigCompositionException`` for a config file that does ``what``."""
    raise ConfigCompositionException(
        f"a config file must not {what}, because that can run code: use the command line instead"
    )


def _check_sweep(params: Any) -> None:
    for key in params or {}:
        if re.findall(r"\w+", str(key))[:1] == ["hydra"]:
            raise ConfigCompositionException(f"a config file must not sweep over {key}")


def _is_hydras_own(key: str, value: object, name: str) -> bool:
    """Whether these logging settings equal Hydra's file of that name; ``name`` may be a pattern."""
    if value == OWN_LOGGING and name in ("none", "*"):
        return True
    return any(value == own for stem, own in _hydras_logging(key) if name in (stem, "*"))


@cache
def _hydras_defaults() -> tuple[dict[str, Any], dict[str, Any]]:
    """Hydra's default ``hydra`` section, and its folders, which apply without our config (--hydra-help)."""
    from hydra.conf import HydraConf

    section: Any = OmegaConf.to_container(OmegaConf.structured(HydraConf), resolve=False)
    output: Any = OmegaConf.to_container(OmegaConf.load(CONF_OF_HYDRA / "output/default.yaml"), resolve=False)
    return section, output


@cache
def _hydras_logging(key: str) -> list[tuple[str, Any]]:
    """Names and content of Hydra's own files of ``hydra_logging`` or ``job_logging``."""
    files = (CONF_OF_HYDRA / key).glob("*.yaml")
    return [(file.stem, OmegaConf.to_container(OmegaConf.load(file))) for file in files]


def _registered(key: str, name: str, chosen: Collection[str] = ()) -> Any:
    """The settings of an installed launcher or sweeper that its plugin registers.

    A part with its own group, such as an Optuna sweeper's sampler, has the settings of the chosen config.
    """
    store = ConfigStore.instance()
    if f"{name}.yaml" not in store.list(f"hydra/{key}"):
        return None
    node: Any = OmegaConf.to_container(OmegaConf.structured(store.load(f"hydra/{key}/{name}.yaml").node))
    node.pop("params", None)
    for part in [part for default in node.pop("defaults", []) for part in default]:
        group = f"hydra/{key}/{part}/"
        for path in chosen:
            if path.startswith(group):
                node[part] = _registered(f"{key}/{part}", path.removeprefix(group))
    return node


def _preset(key: str, name: str) -> Any:
    """The settings of this project's own file, which changes those of a registered launcher."""
    file = PRESETS / key / f"{name}.yaml"
    if not file.is_file():
        return None
    own: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    (base,) = own.pop("defaults")
    return _registered(key, base) | own


def _targets(value: Any) -> list[Any]:
    if isinstance(value, dict):
        here = [value["_target_"]] if "_target_" in value else []
        return here + [target for entry in value.values() for target in _targets(entry)]
    if isinstance(value, list):
        return [target for entry in value for target in _targets(entry)]
    return []
