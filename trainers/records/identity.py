"""The identity of a run: method, setting and seed, from its resolved config.

Run id, group, legend, row of a table, order and style of a line all follow from these values. What is not
part of an identity stands in ``effects.py``, with the reason, and what a setting is where a config does not
say it, as configs of older code.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple, TypeGuard

from trainers.records.effects import FIRST_KEYS, NO_FEEDBACK, USUAL, Config, Value, alike, without_effect
from trainers.records.effects import at as at  # part of what readers of runs ask for

Settings = tuple[tuple[str, Value], ...]  # by dotted key, sorted

METHOD = ("compressor", "feedback", "wire")  # the groups of conf/ that make a method; all others, a setting
ORIGIN = "resume"  # in a setting: what the runs share that its runs began at checkpoints of


# Methods that are not named after their file.
CLASSES = {"none": "NoCompression", "clt_k": "CLTK", "qsgd": "QSGD"}
CLASSES |= {"ef_sign": "EFSign", "signsgd": "SignSGD", "terngrad": "TernGrad"}
CLASSES |= {"redsync": "RedSync", "sidco": "SIDCo"}


class Word(NamedTuple):
    """A setting in words."""

    key: str
    text: str
    number: float | None  # its value, where that is a number


@dataclass(frozen=True)
class Method:
    """A compressor with all that makes it a method: its settings, feedback, wire and nested parts."""

    settings: Settings
    across: tuple[str, ...] = ()  # keys outside ``METHOD`` that are compared beside it

    @cached_property
    def compressor(self) -> str:
        """As on the command line."""
        return named(str(dict(self.settings)["compressor._target_"]))

    @cached_property
    def label(self) -> str:
        """The method in words. Methods that are not the same have other ones."""
        return ", ".join([self.compressor, *(word.text for word in self._words)])

    @cached_property
    def legend(self) -> str:
        """The same with a density in per cent; a threshold's is that of the paper's rule."""
        said, words = self.compressor, list(self._words)
        first = words[0] if words else None
        if first is not None and first.key == "compressor.density" and first.number is not None:
            joint = " for" if self.compressor == "hard_threshold" else ","
            said += f"{joint} density {_per_cent(first.number)}"
            del words[0]
        return ", ".join([said, *(word.text for word in words)])

    @cached_property
    def family(self) -> str:
        """The words without numbers: what one line through several settings has in common."""
        return ", ".join([self.compressor, *(word.text for word in self._words if word.number is None)])

    @cached_property
    def order(self) -> tuple[str, list[tuple[str, float]], str]:
        """A key for sorting: by family, then by the numbers, then by the words."""
        numbers = [(word.key, word.number) for word in self._words if word.number is not None]
        return self.family, numbers, self.label

    @cached_property
    def _words(self) -> list[Word]:
        found = []
        for key, value in self.settings:
            group, _, rest = key.partition(".")
            if group not in METHOD or key == "compressor._target_":
                continue
            said = f"{rest if group == 'compressor' else key} {text(value)}"
            if (key, value) == ("feedback._target_", NO_FEEDBACK):
                said = "no feedback"
            elif key.endswith("._target_"):
                said = f"{said.split('._target_')[0]}: {named(str(value))}"
            found.append(Word(key, said, value if is_number(value) else None))
        values = dict(self.settings)
        for key in self.across:
            value = values.get(key, USUAL.get(key))
            said = f"{key.rpartition('.')[2]} {text(value)}"
            found.append(Word(key, said, value if is_number(value) else None))
        return found


class Origin(NamedTuple):
    """Another run's checkpoint that a run began at."""

    checkpoint: str  # this one and no other; its run's id comes first
    group: str  # the same for all seeds of that run, if each has begun at its own


@dataclass(frozen=True)
class Identity:
    """What makes a run that run and no other."""

    method: Method
    setting: Settings  # runs of one setting may be compared
    seed: Value
    origin: Origin | None = None

    @cached_property
    def settings(self) -> dict[str, Value]:
        """All of it, by dotted key."""
        return dict(sorted((*self.method.settings, *self.setting, ("seed", self.seed))))

    @cached_property
    def id(self) -> str:
        """A hash of it, 10 hexadecimal digits."""
        return _hash(self.settings | ({ORIGIN: self.origin.checkpoint} if self.origin else {}))

    @cached_property
    def group(self) -> str:
        """A hash of it without the seed."""
        return _hash({key: value for key, value in self.settings.items() if key != "seed"})

    def across(self, keys: Iterable[str]) -> "Identity":
        """The same run, with settings of it taken for a part of its method."""
        keys = tuple(FIRST_KEYS.get(key, key) for key in keys)
        moved = tuple(item for item in self.setting if item[0] in keys)
        kept = tuple(item for item in self.setting if item[0] not in keys)
        method = replace(self.method, settings=(*self.method.settings, *moved), across=keys)
        return replace(self, method=method, setting=kept)


def identify(config: Config, origin: Origin | None = None) -> Identity:
    """The identity of a run with this config, which began at ``origin`` if not at its start."""
    found = dict(sorted(_settings(config)))
    if origin:
        found[ORIGIN] = origin.group
    seed = found.pop("seed", None)
    method = {key: value for key, value in found.items() if key.partition(".")[0] in METHOD}
    setting = {key: value for key, value in found.items() if key not in method}
    return Identity(Method(tuple(method.items())), tuple(sorted(setting.items())), seed, origin)


def names_checkpoint(config: Config) -> bool:
    """Whether the run was told which checkpoint to begin at: its own, or another run's."""
    return config.get("resume", "auto") not in ("auto", "never")


def compressor_name(config: Config) -> str:
    """The compressor as on the command line."""
    return named(config["compressor"]["_target_"])


def subject_of(config: Config) -> str:
    """What was trained, for a title: model and data, unless the run was given a name.

    No part of an identity.
    """
    file = config["compressor"]["_target_"].split(".")[-2]  # which a compressor's yaml is named after
    return config["name"].removesuffix(f"-{file}")


def named(target: str) -> str:
    """A part as on the command line: its file, where the part is named after that; else all of its name."""
    _, _, path = target.partition(".")
    file = path.partition(".")[0]
    usual = CLASSES.get(file) or "".join(word.capitalize() for word in file.split("_"))
    if target == f"compressors.{file}.{usual}":
        return file
    return text(target) if "." in target else repr(target)


def text(value: Value) -> str:
    """A value in words; two values that are not the same have other ones."""
    if value is None:
        return "unset"
    if isinstance(value, tuple):
        return f"[{', '.join(map(text, value))}]"
    if not isinstance(value, str):
        return str(value)
    is_plain = value.translate(dict.fromkeys(map(ord, "_-./:"), "a")).isalnum() and value.isascii()
    return value if is_plain and not _reads_otherwise(value) else json.dumps(value)


def _reads_otherwise(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word in ("unset", "True", "False")
    return True


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _settings(config: Config) -> Iterator[tuple[str, Value]]:
    """All that can change the result and is not usual, by dotted key."""
    for key, value in flatten(config):
        if repr(value) != repr(USUAL.get(key)) and without_effect(config, key) is None:
            yield FIRST_KEYS.get(key, key), value


def flatten(config: Config | Sequence[object], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Every value by its dotted key, equal numbers written alike: 1 and 1.0, 0 and -0.0.

    A density schedule ``{kind: NAME, ...}`` is NAME, and its settings stand below.
    """
    entries: Iterable[tuple[object, object]]
    entries = config.items() if isinstance(config, Mapping) else enumerate(config)
    for name, value in entries:
        is_kind = name == "kind" and prefix.endswith(".schedule.")
        key = prefix.removesuffix(".") if is_kind else f"{prefix}{name}"
        if name == "_partial_":  # tells Hydra to leave the call to run.py
            continue
        if isinstance(value, Mapping) or (isinstance(value, (list, tuple)) and _holds_parts(value)):
            yield from flatten(value, f"{key}.")
        else:
            yield key, alike(value)


def _holds_parts(values: Sequence[object]) -> bool:
    return any(isinstance(part, Mapping) for part in values)


def _per_cent(value: float) -> str:
    return f"{Decimal(repr(value)).scaleb(2).normalize():f} %"


def _hash(settings: Mapping[str, Value]) -> str:
    written = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(written.encode(), digest_size=5).hexdigest()
