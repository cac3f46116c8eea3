"""Config composition, as on the command line."""

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

CONF = Path(__file__).parents[2] / "conf"


def resolved(*overrides: str) -> dict[str, Any]:
    """The composed config that run.py gets."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(overrides), return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        del config.hydra
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
