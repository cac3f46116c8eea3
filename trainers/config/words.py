"""Words of the command line, before Hydra reads them."""

import re
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser

from trainers.config.api_keys import refuse_keys
from trainers.config.guard import CONF

_IDLE = {
    "hydra.run.dir": "output=DIR sets the place of run folders",
    "hydra.verbose": "nothing is logged through Hydra",
}


def checked(words: Sequence[str]) -> list[str]:
    """The words in Hydra's form. Raises ``ValueError`` for malformed words and for secrets."""
    found = [_bracketed(home_expanded(word)) for word in words]
    refuse_keys(found)
    _require_readable(found)
    found = options_first(found)
    for word in found:
        key = word.partition("=")[0].lstrip("+~")
        if key in _IDLE:
            raise ValueError(f"{key} has no effect: {_IDLE[key]}")
    return found


def _require_readable(words: Sequence[str]) -> None:
    """Raise ``ValueError`` for characters that Hydra cannot read, no value, and Python's word for null."""
    for word in words:
        key, equals, value = word.partition("=")
        if equals and not value and not key.startswith("~"):
            raise ValueError(f"{key} must have a value: {key}=null for none, \"{key}=''\" for an empty text")
        if not key.isascii():
            raise ValueError(f"settings and options have ASCII characters only, got {word}")
        if not re.sub(r"'[^']*'|\"[^\"]*\"", "", value).isascii():
            raise ValueError(
                f"{key}: a value with other than ASCII characters needs quotes: \"{key}='{value}'\""
            )
        if "None" in re.split(r"[,\[\]]", value):
            raise ValueError(f"{key} must be null for no value, got None, which is a text")


def options_first(words: list[str]) -> list[str]:
    """The words with options before overrides, as Hydra requires; ``-m`` is omitted if there is ``--cfg``.

    Raises ``ValueError`` for unknown options, the one that opens a pickle, and settings without ``=``.
    """
    parser = get_args_parser()
    parser.allow_abbrev = False  # --experiment=NAME would be taken for --experimental-rerun
    dashed = [word for word in words if re.match(r"--[a-z_][\w./@]*=", word)]

    def refuse(message: str) -> None:
        if dashed and message.startswith("unrecognized arguments: "):
            message += f"; settings have no dashes: {dashed[0].lstrip('-')}"
        raise ValueError(f"{message}; --help lists all options and settings")

    parser.error = refuse  # type: ignore[method-assign, assignment]  # argparse would print the usage
    parsed = parser.parse_intermixed_args(words)
    if parsed.experimental_rerun is not None:
        raise ValueError("--experimental-rerun is not supported: it loads a pickle, which can run code")
    options = list(words)
    for override in parsed.overrides:
        if "=" not in override and not override.startswith("~"):
            key = override.lstrip("+")
            raise ValueError(f"{key} must have a value, as {key}=VALUE")
        options.remove(override)
    if parsed.cfg is not None:
        options = [word for word in options if word not in ("-m", "--multirun")]
    return [*options, *parsed.overrides]


def _bracketed(word: str) -> str:
    """``diagnostics=a,b`` as ``diagnostics=[a,b]``, the choice of several options; otherwise it is a sweep.

    Raises ``ValueError`` for an unknown option; Hydra's own message would not list the known ones.
    """
    key, _, value = word.partition("=")
    if key != "diagnostics":
        return word
    chosen = [name.strip() for name in value.removeprefix("[").removesuffix("]").split(",") if name.strip()]
    known = sorted(path.stem for path in (CONF / "diagnostics").glob("*.yaml"))
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"diagnostics must be some of {', '.join(known)}, got {unknown[0]}")
    return f"{key}=[{','.join(chosen)}]"


def home_expanded(word: str) -> str:
    """``KEY=~/FOLDER`` with ``~`` replaced by the home folder; neither the shell nor Hydra replaces it.

    Raises ``ValueError`` for the home of an unknown user.
    """
    key, equals, value = word.partition("=")
    if not value.startswith("~"):
        return word
    try:
        return f"{key}{equals}{Path(value).expanduser()}"
    except RuntimeError:
        raise ValueError(f"{key} must begin with a known home folder, got {value!r}") from None
