"""The identity of a run: method, setting and seed, from its resolved config.

Run id, group, legend, table row, order and line style are determined by these values. ``effects.py`` lists
the settings that are not part of an identity, with reasons, and ``values.py`` the values of settings that
older configs lack.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple, TypeGuard

from trainers.identity.effects import without_effect
from trainers.identity.values import DEFAULTS, FIRST_KEYS, NO_FEEDBACK, Config, Value, alike
from trainers.identity.values import at as at  # exported for readers of runs

Settings = tuple[tuple[str, Value], ...]  # by dotted key, sorted

METHOD = ("compressor", "feedback", "local", "wire")  # groups of conf/ whose settings define the method
ORIGIN = "resume"  # key of ``Origin.group`` in the setting of runs that began at another run's checkpoint


# Compositions that have a name: the classes of all their parts.
COMPOSITIONS = {
    "sparse_loco": {
        "compressor._target_": "compressors.chain.Chain",
        "compressor.first._target_": "compressors.chunk_top_k.ChunkTopK",
        "compressor.second._target_": "compressors.bin_means.BinMeans",
    },
    "cocktail": {
        "compressor._target_": "compressors.chain.Chain",
        "compressor.first._target_": "compressors.random_k.RandomK",
        "compressor.second._target_": "compressors.chain.Chain",
        "compressor.second.first._target_": "compressors.top_k.TopK",
        "compressor.second.second._target_": "compressors.qsgd.QSGD",
    },
}


class Word(NamedTuple):
    """A setting in words."""

    key: str
    text: str
    number: float | None  # its value, if that is a number


@dataclass(frozen=True)
class Method:
    """A compressor with all that makes it a method: its settings, feedback, wire and nested parts."""

    settings: Settings
    across: tuple[str, ...] = ()  # keys outside ``METHOD`` that count as part of the method

    @cached_property
    def composition(self) -> str | None:
        """The name of a composition of these parts; None if it has none."""
        of_compressor = (item for item in self.settings if item[0].startswith("compressor."))
        parts = {key: value for key, value in of_compressor if key.endswith("._target_")}
        return next((name for name, known in COMPOSITIONS.items() if known == parts), None)

    @cached_property
    def compressor(self) -> str:
        """The compressor's name as on the command line."""
        return self.composition or named(str(dict(self.settings)["compressor._target_"]))

    @cached_property
    def label(self) -> str:
        """The method in words. Different methods have different labels."""
        return ", ".join([self.compressor, *(word.text for word in self.words)])

    @cached_property
    def family(self) -> str:
        """The label without numbers; all points of a line in a figure have the same one."""
        return ", ".join([self.compressor, *(word.text for word in self.words if word.number is None)])

    @cached_property
    def order(self) -> tuple[str, list[tuple[str, float]], str]:
        """A key for sorting: by family, then by the numbers, then by the words."""
        numbers = [(word.key, word.number) for word in self.words if word.number is not None]
        return self.family, numbers, self.label

    @cached_property
    def words(self) -> list[Word]:
        """Its settings in words, in the order of their keys."""
        found = []
        implied = COMPOSITIONS.get(self.composition or "", {"compressor._target_"})
        for key, value in self.settings:
            group, _, rest = key.partition(".")
            if group not in METHOD or key in implied or (group == "local" and rest.endswith("_target_")):
                continue
            words = f"{rest if group == 'compressor' else key} {text(value)}"
            if (key, value) == ("feedback._target_", NO_FEEDBACK):
                words = "no feedback"
            elif key.endswith("._target_"):
                words = f"{words.split('._target_')[0]}: {named(str(value))}"
            found.append(Word(key, words, value if is_number(value) else None))
        values = dict(self.settings)
        for key in self.across:
            value = values.get(key, DEFAULTS.get(key))
            words = f"{key.rpartition('.')[2]} {text(value)}"
            found.append(Word(key, words, value if is_number(value) else None))
        return found


class Origin(NamedTuple):
    """Another run's checkpoint that a run began at."""

    checkpoint: str  # unique name of the checkpoint; it begins with the run's id
    group: str  # equal for all seeds, if each seed began at the checkpoint of its own seed


@dataclass(frozen=True)
class Identity:
    """The identity of a run: method, setting, seed and origin."""

    method: Method
    setting: Settings  # runs with equal settings may be compared
    seed: Value
    origin: Origin | None = None

    @cached_property
    def settings(self) -> dict[str, Value]:
        """All settings by dotted key."""
        return dict(sorted((*self.method.settings, *self.setting, ("seed", self.seed))))

    @cached_property
    def id(self) -> str:
        """A hash of the identity, 10 hexadecimal digits."""
        return _hash(self.settings | ({ORIGIN: self.origin.checkpoint} if self.origin else {}))

    @cached_property
    def group(self) -> str:
        """A hash of the identity without the seed."""
        return _hash({key: value for key, value in self.settings.items() if key != "seed"})

    def across(self, keys: Iterable[str]) -> "Identity":
        """The same identity, with the settings ``keys`` as part of the method."""
        keys = tuple(FIRST_KEYS.get(key, key) for key in keys)
        moved = tuple(item for item in self.setting if item[0] in keys)
        kept = tuple(item for item in self.setting if item[0] not in keys)
        method = replace(self.method, settings=(*self.method.settings, *moved), across=keys)
        return replace(self, method=method, setting=kept)


def identify(config: Config, origin: Origin | None = None) -> Identity:
    """The identity of a run with this config that began at ``origin``, or at its first step if None."""
    found = dict(sorted(_settings(config)))
    if origin:
        found[ORIGIN] = origin.group
    seed = found.pop("seed", None)
    method = {key: value for key, value in found.items() if key.partition(".")[0] in METHOD}
    setting = {key: value for key, value in found.items() if key not in method}
    return Identity(Method(tuple(method.items())), tuple(sorted(setting.items())), seed, origin)


def names_checkpoint(config: Config) -> bool:
    """Whether ``resume`` is the path of a checkpoint."""
    return config.get("resume", "auto") not in ("auto", "never")


def compressor_name(config: Config) -> str:
    """The compressor as on the command line."""
    return Method(tuple(flatten(config["compressor"], "compressor."))).compressor


def subject_of(config: Config) -> str:
    """Model and data for a title, or the name that the user gave the run. Not part of an identity."""
    file = config["compressor"]["_target_"].split(".")[-2]  # a compressor's yaml has the same name
    composed = compressor_name(config)
    name: str = config["name"]
    is_composed = composed in COMPOSITIONS and name.endswith(f"-{composed}")
    return name.removesuffix(f"-{composed if is_composed else file}")


@cache
def named(target: str) -> str:
    """A part as on the command line: its file's name if the class is named after it, else the full target."""
    package, _, path = target.partition(".")
    file, _, own = path.partition(".")
    if package == "compressors" and own.lower() == (
        file.replace("_", "") if file != "none" else "nocompression"
    ):
        return file
    return text(target) if "." in target else repr(target)


def text(value: Value) -> str:
    """A value as text; different values have different texts."""
    if value is None:
        return "unset"
    if isinstance(value, tuple):
        return f"[{', '.join(map(text, value))}]"
    if not isinstance(value, str):
        return str(value)
    is_plain = value.translate(dict.fromkeys(map(ord, "_-./:"), "a")).isalnum() and value.isascii()
    return value if is_plain and not _is_ambiguous(value) else json.dumps(value)


def _is_ambiguous(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return word in ("unset", "True", "False")
    return True


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _settings(config: Config) -> Iterator[tuple[str, Value]]:
    """All settings that can change the result and differ from ``DEFAULTS``, by dotted key."""
    for key, value in flatten(config):
        entry = without_effect(config, key)
        if repr(value) != repr(DEFAULTS.get(key)) and (entry is None or entry.is_in_id):
            yield FIRST_KEYS.get(key, key), value


def flatten(config: Config | Sequence[object], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Every value by its dotted key. Equal numbers become identical: 1 and 1.0, 0 and -0.0.

    The key of a density schedule ``{kind: NAME, ...}`` has the value NAME; its settings have keys below it.
    """
    entries: Iterable[tuple[object, object]]
    entries = config.items() if isinstance(config, Mapping) else enumerate(config)
    for name, value in entries:
        is_kind = name == "kind" and prefix.endswith(".schedule.")
        key = prefix.removesuffix(".") if is_kind else f"{prefix}{name}"
        if name == "_partial_":  # Hydra's mark of a partial call, not a setting
            continue
        if isinstance(value, Mapping) or (isinstance(value, (list, tuple)) and _holds_parts(value)):
            yield from flatten(value, f"{key}.")
        else:
            yield key, alike(value)


def _holds_parts(values: Sequence[object]) -> bool:
    return any(isinstance(part, Mapping) for part in values)


def _hash(settings: Mapping[str, Value]) -> str:
    written = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(written.encode(), digest_size=5).hexdigest()
