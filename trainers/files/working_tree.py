"""Whether the code differs from its last commit.

Standard library only, because code that reads results uses it.
"""

import subprocess
from pathlib import Path

from trainers.names import PREFIX

PACKAGES = ("compressors", "data", "models", "trainers")  # the code that can change a result
_MOST_FILES = 20
_PAGES = (":(top,exclude)results/pages", ":(top,exclude)docs")


def is_modified(folder: Path) -> bool:
    """Whether the code in the repository of ``folder`` differs from its last commit.

    An uncommitted file of the code is a difference. Pages and figures do not count as code.
    """
    changed = git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":/", *_PAGES)
    return bool(changed or untracked_code(folder))


def untracked_code(folder: Path) -> list[str]:
    """Files of the code that are neither committed nor ignored, at most ``_MOST_FILES``."""
    places = [f":/{name}" for name in (*PACKAGES, "conf", "run.py")]
    found = git(folder, "ls-files", "--others", "--exclude-standard", "--full-name", "--", *places)
    return (found or "").splitlines()[:_MOST_FILES]


def git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command on the code in ``folder``.

    None without git, without a repository, and in a wheel, which may lie in a repository of its user.
    """
    if PREFIX:
        return None
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
