"""Program that prints the knobs of methods, for ``python -m results``; argument and output are JSON."""

import json
import re
import sys
from functools import reduce
from typing import Any

from compressors.core.checks import is_real
from compressors.core.codec import Codec
from compressors.core.reducer import Reducer
from compressors.parts.knob import Knob
from trainers.config.composition import compose_with_references
from trainers.config.errors import ConfigError, one_line
from trainers.config.instantiation import make
from trainers.files.plain import Config

REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def knob_of(overrides: list[str], key: str | None) -> dict[str, Any] | None:
    """The knob of the method of a config: as its class declares it, or the setting ``key``, if it is given.

    None if the class declares none. ``factors`` has a factor by override key of run.py, ``value`` is that of
    the first of these settings. A slope of 0 is not known. Raises ``ConfigError`` for a setting without a
    number that the search could begin at, and as ``compose``.
    """
    config, references = compose_with_references(overrides)
    method: Codec | Reducer = make(config["compressor"])
    declared = method.knob
    factors = {} if declared is None else declared.factors
    factors = {_key(f"compressor.{name}", references): factor for name, factor in factors.items()}
    if key is not None and {_key(key, references)} != factors.keys():
        declared, factors = Knob(key, slope=0.0), {_key(key, references): 1.0}
    if declared is None:
        return None
    first = next(iter(factors)).lstrip("+")
    value = _value(config, first)
    if declared.dense_at is None and not (is_real(value) and value > 0):
        got = f"no setting {first}" if value is _ABSENT else f"{first}={value}"
        raise ConfigError(f"a knob must be a setting with a number above 0, got {got}")
    own = declared._asdict()
    del own["setting"], own["others"]
    shape = {"is_whole": isinstance(value, int), "is_ragged": method.traits.ragged}
    return {**own, **shape, "factors": factors, "value": value if is_real(value) else None}


def _key(key: str, references: Config) -> str:
    """The override key of a setting: the one that it refers to, or with + if the yaml does not have it."""
    value = _value(references, key)
    found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else key if value is not _ABSENT else f"+{key}"


_ABSENT = object()


def _value(config: Config, key: str) -> Any:
    def below(settings: Any, part: str) -> Any:
        return settings.get(part, _ABSENT) if isinstance(settings, dict) else _ABSENT

    return reduce(below, key.split("."), config)


def main(argument: str) -> None:
    """Print a list of knobs for ``argument``, a list of pairs of ``overrides`` and ``key``."""
    print(json.dumps([knob_of(overrides, key) for overrides, key in json.loads(argument)]))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (ConfigError, ValueError) as error:
        sys.exit(f"error: {one_line(error)}")
