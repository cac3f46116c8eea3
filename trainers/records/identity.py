"""The identity of a run: method, setting and seed, from its resolved config.

Run id, group, legend, row of a table, order and style of a line all follow from these values. What is not
part of an identity stands in ``WITHOUT_EFFECT``, with the reason; what a setting is where a config does
not say it, as configs of older code, stands in ``USUAL``.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

Config = Mapping[str, Any]
Value = str | int | float | bool | tuple["Value", ...] | None
Settings = tuple[tuple[str, Value], ...]  # by dotted key, sorted

METHOD = ("compressor", "feedback", "wire")  # the groups of conf/ that make a method; all others, a setting
ORIGIN = "resume"  # in a setting: what the runs share that its runs began at checkpoints of


class WithoutEffect(NamedTuple):
    """Settings that cannot change a result: a key stands for all that is below it."""

    keys: tuple[str, ...]
    reason: str  # follows "has no effect"; {group[key]} is a setting
    applies: Callable[[Config], bool] = lambda config: True
    is_idle: bool = False  # nothing at all follows from it, so that nobody can mean it


def at(config: Config, key: str) -> object:
    """The setting at a dotted key, None where there is none."""
    value: object = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _has(key: str, *values: Value) -> Callable[[Config], bool]:
    """Whether a setting has one of these values; without any, whether it is set."""
    return lambda config: _alike(at(config, key)) in values if values else at(config, key) is not None


def _lacks(key: str, *values: Value) -> Callable[[Config], bool]:
    return lambda config: not _has(key, *values)(config)


def _is_plain_wire(config: Config) -> bool:
    return all(at(config, key) in (None, USUAL[key]) for key in ("wire.indices", "wire.values"))


def _has_known_files(config: Config) -> bool:
    """Whether the name of its data tells what they are; files of a user's own, only where they lie."""
    target = _alike(at(config, "data._target_"))
    return target != IMAGE_FOLDER and (target != LIBSVM or at(config, "data.name") in LIBSVM_FILES)


def _has_no_buckets(config: Config) -> bool:
    """Whether no step reduces bucket by bucket; a dense one may without being asked to."""
    return not at(config, "trainer.overlap") and at(config, "compressor._target_") != NONE


def _has_nothing_to_feed_back(config: Config) -> bool:
    """Whether nothing is lost, and feedback is of what was lost alone."""
    return at(config, "compressor._target_") == NONE and at(config, "feedback._target_") != CORRECTED


def _idle(key: str, reason: str, applies: Callable[[Config], bool]) -> WithoutEffect:
    return WithoutEffect((key,), reason, applies, is_idle=True)


IMAGE_FOLDER, LIBSVM = "data.image_folder.image_folder", "data.libsvm.libsvm"
LIBSVM_FILES = (
    "a9a",
    "gisette_scale",
    "madelon",
    "mushrooms",
    "phishing",
    "w8a",
)  # as data.convex.libsvm knows them
TESTS_NOTHING = _has("data._target_", LIBSVM)
NO_TEST = "with these data, which hold nothing out to test"
AUTOLRS = "trainers.autolrs.AutoLRS"
# Today's name of each part that has moved, and its first one: ids are made of first names, so that a move
# changes none.
FIRST_NAMES = {
    "compressors.encoding.settings.Encoding": "compressors.wire.Wire",
    "data.convex.breast_cancer.breast_cancer": "data.sklearn_data.breast_cancer",
    "data.convex.libsvm.libsvm": LIBSVM,
    "data.images.digits.digits": "data.sklearn_data.digits",
    "data.images.folder.image_folder": IMAGE_FOLDER,
    "data.images.folder.imagenet": "data.image_folder.imagenet",
    **{f"data.images.cifar.{name}": f"data.torchvision_data.{name}" for name in ("cifar10", "cifar100")},
    **{f"data.images.mnist.{name}": f"data.torchvision_data.{name}" for name in ("fashion_mnist", "mnist")},
    "data.ratings.movielens.movielens": "data.movielens.movielens",
    "data.ratings.synthetic.synthetic_ratings": "data.synthetic_ratings.synthetic_ratings",
    "data.text.sst2.sst2": "data.glue.sst2",
    **{
        f"data.text.language_modelling.{name}": f"data.text.{name}"
        for name in ("penn_treebank", "python_docs", "wikitext2")
    },
    "models.convex.logistic_l2.logistic_l2": "models.logistic_l2.logistic_l2",
    "trainers.schedules.autolrs.AutoLRS": AUTOLRS,
    **{
        f"trainers.schedules.schedules.{name}": f"trainers.schedule.{name}"
        for name in ("Constant", "Cosine", "Linear", "WarmupStep")
    },
}
SPEED_AND_ROUNDING = "but on speed, on a plain wire, and on rounding under trainer.reduction=all_reduce"
NO_FEEDBACK, NONE = "compressors.feedback.no_feedback", "compressors.none.NoCompression"
CORRECTED = "compressors.feedback.MomentumCorrection"  # feedback that has a part in dense training
WITHOUT_EFFECT = (
    WithoutEffect(("budget",), "by itself: the compressor holds its values"),
    WithoutEffect(("name", "output"), "but on where the run folder lies"),
    WithoutEffect(("tracker",), "but on where else records go"),
    WithoutEffect(("processes",), "but on who computes: workers are not processes"),
    WithoutEffect(("threads", "device"), "but on what computes, and so on rounding"),
    WithoutEffect(("kernels",), "but on speed: kernels give the bits of their definition"),
    WithoutEffect(("isolate", "timeout_seconds"), "but on how processes end"),
    WithoutEffect(("checkpoint",), "but on what is kept to go on from"),
    WithoutEffect(("resume",), "but on where a run begins: another run's checkpoint is its origin"),
    WithoutEffect(("diagnostics",), "but on what is measured: they look on"),
    WithoutEffect(("data.root",), "but on where files lie", _has_known_files),
    WithoutEffect(("data.download", "data.home", "model.download"), "but on where files come from"),
    WithoutEffect(("data.memory_gib", "data.decoders"), "but on when images are decoded"),
    # On a coded wire every bucket is a message, whose bytes depend on what is in it.
    _idle("trainer.bucket_megabytes", "without trainer.overlap or compressor=none", _has_no_buckets),
    WithoutEffect(("trainer.overlap", "trainer.bucket_megabytes"), SPEED_AND_ROUNDING, _is_plain_wire),
    _idle("trainer.epochs", "beside trainer.steps={trainer[steps]}", _has("trainer.steps")),
    _idle("trainer.evaluate_every", NO_TEST, TESTS_NOTHING),
    _idle("trainer.evaluation_batch_size", NO_TEST, TESTS_NOTHING),
    _idle("data.alpha", "with data.partition={data[partition]}", _lacks("data.partition", "dirichlet")),
    _idle("optimizer.lr", "with schedule=autolrs, which searches for it", _has("schedule._target_", AUTOLRS)),
    _idle(
        "schedule.warmup_share",
        "beside schedule.warmup_epochs={schedule[warmup_epochs]}",
        _has("schedule.warmup_epochs"),
    ),
    _idle("model.config", "beside model.pretrained={model[pretrained]}", _has("model.pretrained")),
    _idle(
        "compressor.density",
        "beside compressor.threshold={compressor[threshold]}",
        _has("compressor.threshold"),
    ),
    _idle(
        "feedback",
        "with compressor=none, which leaves nothing to feed back",
        _has_nothing_to_feed_back,
    ),
    _idle("feedback.scale", "with feedback=none", _has("feedback._target_", NO_FEEDBACK)),
)
# What a setting is where a config does not say it. An identity holds what is not usual, so that a new
# setting leaves old ids as they are; null is the usual value of all others.
USUAL: dict[str, Value] = {
    "compressor.schedule": "constant",
    "compressor.schedule.start": 0.25,
    "compressor.schedule.epochs": 4,
    "compressor.shared_coordinates": True,
    "data.drop_last": False,
    "data.reshard": "never",
    "feedback._target_": "compressors.feedback.ErrorFeedback",
    "feedback.scale": "gradient",
    "model.zero_init_residual": False,
    "trainer._target_": "trainers.settings.TrainerSettings",
    "trainer.bucket_megabytes": 25,
    "trainer.channels_last": False,
    "trainer.nonfinite": "stop",
    "trainer.overlap": False,
    "trainer.precision": "fp32",
    "trainer.reduction": "worker_order",
    "wire._target_": "compressors.wire.Wire",
    "wire.indices": "plain",
    "wire.values": "fp32",
}
# Methods that are not named after their file.
CLASSES = {"none": "NoCompression", "clt_k": "CLTK", "qsgd": "QSGD"}


def without_effect(config: Config, key: str) -> WithoutEffect | None:
    """Why the setting at a dotted key cannot change this config's result; None where it can."""
    for entry in WITHOUT_EFFECT:
        if any(f"{key}.".startswith(f"{known}.") for known in entry.keys) and entry.applies(config):
            return entry
    return None


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
        keys = tuple(keys)
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
            yield key, value


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
            yield key, _alike(value)


def _holds_parts(values: Sequence[object]) -> bool:
    return any(isinstance(part, Mapping) for part in values)


def _alike(value: object) -> Value:
    if isinstance(value, (list, tuple)):
        return tuple(map(_alike, value))
    if isinstance(value, float) and value.is_integer():
        return int(value)  # which has no -0
    if isinstance(value, str):
        return FIRST_NAMES.get(value, value)
    return value if value is None or isinstance(value, (int, float, bool)) else str(value)


def _per_cent(value: float) -> str:
    return f"{Decimal(repr(value)).scaleb(2).normalize():f} %"


def _hash(settings: Mapping[str, Value]) -> str:
    written = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(written.encode(), digest_size=5).hexdigest()
