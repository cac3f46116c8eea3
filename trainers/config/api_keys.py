"""Refusal of API keys in configs and command lines, which are stored in run folders, logs and W&B."""

import os
import re
from collections.abc import Iterable

from trainers.config.targets import walk
from trainers.files.plain import Config

_NAMES = re.compile(
    r"(?:^|[._-])(?:api[_-]?key|apikey|secret|passw(?:or)?d|credentials?|auth|access[_-]?token)s?$", re.I
)
_SHAPES = (
    re.compile(  # keys of W&B, old (no commit in a path) and new, Hugging Face, GitHub; URLs with a password
        r"(?<![0-9A-Za-z/])[0-9a-f]{40}(?![0-9A-Za-z/])"
        r"|(?<![0-9A-Za-z])(?:wandb_v1_\w{20,}|hf_\w{20,}|gh[a-z]_\w{20,}|github_pat_\w{20,})"
        r"|://[^/\s:@]*:[^/\s@]+@"
    )
)
_VARIABLES = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.I)
_SHORTEST = 8  # values of variables with fewer characters do not count as secrets


def refuse_keys(words: Iterable[str]) -> None:
    """Raise ``ValueError`` for a word ``name=value`` of a command line that contains an API key.

    A key is recognised by its name, by its form, or by an environment variable of the same value whose name
    contains key, token, secret or password. The message does not contain the key.
    """
    secrets = _secrets()
    for word in words:
        name, _, value = word.partition("=")
        _check(name.lstrip("+~-"), value or name, bool(value), secrets)


def refuse_keys_in(config: Config) -> None:
    """Raise ``ValueError`` for a config that contains an API key, recognised as in ``refuse_keys``."""
    secrets = _secrets()
    for path, value, _ in walk(config):
        _check("a name", path[-1], False, secrets)
        if value is not None and not isinstance(value, (dict, list, tuple)):
            _check(".".join(path), str(value), True, secrets)


def _check(name: str, value: str, has_value: bool, secrets: set[str]) -> None:
    if (has_value and _NAMES.search(name)) or _SHAPES.search(value) or any(s in value for s in secrets):
        shown = "a word" if _SHAPES.search(name) or any(s in name for s in secrets) else name
        raise ValueError(
            f"{shown} looks like an API key or password, which would end up in the run folder: "
            "keep it in the environment (WANDB_API_KEY) or in ~/.netrc"
        )


def _secrets() -> set[str]:
    named = (value for name, value in os.environ.items() if _VARIABLES.search(name))
    return {value for value in named if len(value) >= _SHORTEST and value[0] != "/"}  # not a path to a key
