"""Checks of the ``hydra`` section of a config, which names code: launchers, sweepers, callbacks, logging."""

import re
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
CODE_OF_PLUGINS = ("hydra._internal.core_plugins.", "hydra_plugins.")


def check_files(section: dict[str, Any], chosen: set[str]) -> None:
    """Raise for a ``hydra`` section of config files that says more than which runs a sweep has.

    ``chosen`` are the configs it is made of, of which ``hydra/launcher/NAME`` and its like were typed.
    """
    from hydra.conf import HydraConf

    usual: Any = OmegaConf.to_container(OmegaConf.structured(HydraConf), resolve=False)
    own = Path(hydra.__file__).parent / "conf/hydra/output/default.yaml"  # under --hydra-help, without ours
    hydras: Any = OmegaConf.to_container(OmegaConf.load(own), resolve=False)
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
            refuse(f"set hydra.{key}")


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


def refuse(what: str) -> NoReturn:
    """Raise for what a config file does."""
    raise ConfigCompositionException(
        f"a config file must not {what}: it can run code; type it on the command line"
    )


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
    node: Any = OmegaConf.to_container(OmegaConf.structured(store.load(f"hydra/{key}/{name}.yaml").node))
    node.pop("params", None)
    return node


def _targets(value: Any) -> list[Any]:
    if isinstance(value, dict):
        here = [value["_target_"]] if "_target_" in value else []
        return here + [target for entry in value.values() for target in _targets(entry)]
    if isinstance(value, list):
        return [target for entry in value for target in _targets(entry)]
    return []
