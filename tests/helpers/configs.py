"""Config composition, as on the command line."""

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from trainers.config import yaml_loader as config_yaml

CONF = Path(__file__).parents[2] / "conf"


def resolved(*overrides: str) -> dict[str, Any]:
    """The composed config that run.py gets."""
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("config", list(overrides), return_hydra_config=True)
            HydraConfig.instance().set_config(config)
            del config.hydra
            return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    finally:
        config_yaml.end()
