"""Environment of a run: versions, code, hardware, command line."""

import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from trainers.config.targets import packages_of
from trainers.files.plain import Config
from trainers.files.working_tree import git, is_modified, untracked_code
from trainers.launch.jobs import command, job_overrides
from trainers.run.code import digest_of_code
from trainers.run.processor import processor

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-learn",
    "transformers",
    "wandb",
    "hydra-core",
    "omegaconf",
)


def environment(config: Config) -> dict[str, object]:
    """Versions, code, hardware and command line of this process, and its job's overrides, as JSON values."""
    import torch

    cuda = torch.cuda.is_available()
    return {
        "command": command(),
        **({} if (overrides := job_overrides()) is None else {"overrides": overrides}),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": git(Path(__file__).parent, "rev-parse", "HEAD"),
        "commit_is_modified": is_modified(Path(__file__).parent),
        "untracked_code": untracked_code(Path(__file__).parent),
        "code": digest_of_code(config),
        "python": platform.python_version(),
        "packages": _versions(PACKAGES),
        "outside_packages": packages_of(config),  # their code is not in the commit
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "workers": config["workers"],
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "threads": config["threads"],
    }


def _versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
