"""Run folders as they lie on disk, to configs, totals and curves."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

NOT_THE_SETTING = (
    "compressor",
    "budget",
    "feedback",
    "seed",
    "name",
    "output",
    "tracker",
    "processes",
    "threads",
)
NOT_THE_SETTING += ("device", "experiment")


@dataclass(frozen=True)
class Run:
    """One finished run."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    records: pd.DataFrame  # one row per record, metrics as columns

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def compressor(self) -> str:
        """The method's name, as on the command line: the file that it lives in."""
        return self.config["compressor"]["_target_"].split(".")[-2]

    @property
    def subject(self) -> str:
        """What was trained, without the method: model and data, unless the run was given a name."""
        return self.config["name"].removesuffix(f"-{self.compressor}")

    @property
    def method(self) -> str:
        """The method with its settings, for a legend."""
        settings = {k: v for k, v in self.config["compressor"].items() if k != "_target_" and v is not None}
        if "threshold" in settings:
            settings.pop("density", None)
        if settings.get("shared_coordinates") is True:
            del settings["shared_coordinates"]
        words = [
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in settings.items()
        ]
        if self.compressor != "none" and self.config["feedback"]["_target_"].endswith("no_feedback"):
            words.append("no feedback")
        return ", ".join([self.compressor, *words])

    @property
    def setting(self) -> str:
        """Everything but method and seed, as one string: runs that may be compared share it."""
        kept = {key: value for key, value in self.config.items() if key not in NOT_THE_SETTING}
        kept["data"] = {k: v for k, v in kept["data"].items() if k not in ("root", "download", "home")}
        if kept["data"].get("partition") != "dirichlet":
            kept["data"].pop("alpha", None)
        kept["trainer"] = {k: v for k, v in kept["trainer"].items() if k not in ("log_every", "overlap")}
        return json.dumps(kept, sort_keys=True)

    def curve(self, metric: str) -> pd.Series:
        """A metric by step, where it was recorded."""
        return self.records.set_index("step")[metric].dropna()


def read_runs(folders: Iterable[Path]) -> list[Run]:
    """All finished runs below ``folders``, in the order of their paths.

    Folders of runs that did not finish or cannot be read are named on standard error and left out.
    Raises ``FileNotFoundError`` for a folder that is not there.
    """
    runs = []
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"no folder {folder}")
        for path in sorted(folder.rglob("config.yaml")):
            if "wandb" in path.relative_to(folder).parts:
                continue
            try:
                runs.append(_read(path.parent))
            except (OSError, ValueError, KeyError, yaml.YAMLError) as error:
                print(f"left out {path.parent}: {' '.join(str(error).split())}", file=sys.stderr)
    return runs


def by_setting(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that differ in method and seed only, together."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.setting].append(run)
    return list(groups.values())


def by_method(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """One setting's runs by method, in a fixed order, seeds ascending; of two with one seed, the last."""
    runs = list(runs)
    scales = {run.config["feedback"].get("scale") for run in runs} - {None}
    found: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in runs:
        scale = run.config["feedback"].get("scale")
        name = f"{run.method}, residual by {scale}" if scale and len(scales) > 1 else run.method
        if run.seed in found[name]:
            print(f"two runs of {name}, seed {run.seed}: using {run.path}", file=sys.stderr)
        found[name][run.seed] = run
    return {method: [seeds[s] for s in sorted(seeds)] for method, seeds in sorted(found.items())}


def _read(path: Path) -> Run:
    summary_path = path / "summary.json"
    if not summary_path.is_file():
        raise ValueError("it has no summary; the run is still going or was interrupted")
    summary = json.loads(summary_path.read_text(encoding="utf-8"))
    if summary.get("status") != "finished":
        raise ValueError(f"its status is {summary.get('status')!r}")
    config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    lines = (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return Run(path, config, summary, pd.DataFrame([json.loads(line) for line in lines]))
