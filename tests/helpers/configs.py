"""Config composition, as on the command line."""

import copy
import os
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

CONF = Path(__file__).parents[2] / "conf"
# By choice of any group: the words of a run in which it can be used
COMPANIONS = {
    **dict.fromkeys(("logistic_l2", "libsvm"), "model=logistic_l2 data=libsvm data.name=few"),
    "least_squares": "model=least_squares data=least_squares",
    **dict.fromkeys(("lstm", "python_docs"), "model=lstm data=python_docs"),
    **{name: f"model=lstm data={name}" for name in ("penn_treebank", "wikitext2")},
    "transformer": "model=transformer data=python_docs",
    "gpt": "model=gpt data=python_docs",
    "text": "model=gpt data=text data.files=[a.txt]",
    "bert": "model=bert data=python_docs data.objective=masked",
    "sst2": "model=bert data=sst2",
    **dict.fromkeys(("neumf", "synthetic_ratings"), "model=neumf data=synthetic_ratings"),
    "movielens": "model=neumf data=movielens",
    "image_folder": "model=mlp data=image_folder data.name=few",
    # digits have no validation split, and too few steps by default
    "autolrs": "model=mlp schedule=autolrs schedule.validation_from=1000 trainer.steps=2000",
    "accordion": "model=mlp compressor=accordion trainer.steps=2000",  # it chooses a density after 10 epochs
    "decay_momentum_sgd": "model=mlp feedback=momentum_correction optimizer=decay_momentum_sgd",
    "diana": "model=mlp compressor=qsgd feedback=diana",
}


def in_use(group: str, option: str) -> list[str]:
    """Overrides that choose an option of a group, with what it needs."""
    alone = f"{group}={option}" if group in ("experiment", "model") else f"model=mlp {group}={option}"
    return (alone if group == "experiment" else COMPANIONS.get(option, alone)).split()


def resolved(*overrides: str) -> dict[str, Any]:
    """The composed config that run.py gets."""
    return copy.deepcopy(_composed(overrides, os.environ.get("DATA_DIR")))


@cache  # a composition takes 0.1 s
def _composed(overrides: tuple[str, ...], data_dir: str | None) -> dict[str, Any]:
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(overrides), return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        del config.hydra
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
