"""The files of sweeps/: their names and parameters."""

from pathlib import Path

import yaml
from command_line import ROOT

NO_SWEEPS = ("chosen", "wandb")  # folders with inputs of sweeps, and with sweeps for W&B's agents
SWEEPS = [path for path in sorted((ROOT / "sweeps").glob("**/*.yaml")) if path.parent.name not in NO_SWEEPS]


def name_of(path: Path) -> str:
    """The sweep's name on the command line."""
    return path.relative_to(ROOT / "sweeps").with_suffix("").as_posix()


def is_every_method(values: object) -> bool:
    """Whether a sweep has all methods, or all except some."""
    return str(values).startswith("glob(*")


def params_of(path: Path) -> dict[str, str]:
    """The swept parameters of a file, including those of the sweeps in its defaults list."""
    sweep = yaml.safe_load(path.read_text())
    below = [ROOT / f"sweeps/{name}.yaml" for name in sweep.get("defaults", ()) if isinstance(name, str)]
    found = {key: value for file in below if file.exists() for key, value in params_of(file).items()}
    return found | sweep.get("hydra", {}).get("sweeper", {}).get("params", {})


def jobs_of(path: Path) -> list[dict[str, str]]:
    """Jobs of a sweep that contain every value of every setting, all with seed 0."""
    values = {key: str(of_key).split(",") for key, of_key in params_of(path).items()} | {"seed": ["0"]}
    most = max(map(len, values.values()))
    return [{key: of_key[i % len(of_key)] for key, of_key in values.items()} for i in range(most)]
