"""Settings that cannot change a result, with conditions and reasons.

Run ids do not contain these settings, with few exceptions, and the command line refuses those of them that
have no effect at all.
The list is separate from the classes, because run ids are computed without importing them, also for old
configs whose classes have moved. Each class checks its own values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cache
from typing import Any, NamedTuple

from trainers.identity.values import (
    AUTOLRS,
    DEFAULTS,
    IMAGE_FOLDER,
    LIBSVM,
    LIBSVM_FILES,
    MOMENTA,
    NO_FEEDBACK,
    NONE,
    TEXT,
    WARMUP_STEP,
    WITHOUT_RESIDUAL,
    Config,
    Value,
    alike,
    at,
)

Condition = Callable[[Config], bool]
# Facts about a run that are known only when it starts, or when its parts are built.
SINGLE, NO_CONVOLUTIONS, ANALYTIC, NOTHING_HELD_OUT = (
    "single",
    "no_convolutions",
    "analytic",
    "nothing_held_out",
)


class WithoutEffect(NamedTuple):
    """Settings that cannot change a result. A key stands for all keys below it."""

    keys: tuple[str, ...]
    reason: str  # follows "has no effect"; {group[key]} is a setting
    applies: Condition = lambda config: True
    is_refused: bool = False  # it has no effect at all, so setting it is a mistake
    fact: str | None = None  # fact about the run that is required in addition to ``applies``
    is_in_id: bool = False  # its entry is newer than runs whose ids contain it

    def message(self, key: str, config: Config) -> str:
        """The error message for this setting."""
        reason = self.reason.format_map(config)
        return f"{key} has no effect{reason if reason.startswith(':') else f' {reason}'}"


def refused(key: str, reason: str, applies: Condition, *, is_in_id: bool = False) -> WithoutEffect:
    return WithoutEffect((key,), reason, applies, is_refused=True, is_in_id=is_in_id)


def refused_where(fact: str, key: str, reason: str) -> WithoutEffect:
    return WithoutEffect((key,), reason, is_refused=True, fact=fact)


def has(key: str, *values: Value) -> Condition:
    """Whether a setting has one of ``values``; without ``values``, whether it is not null."""
    return lambda config: alike(at(config, key)) in values if values else at(config, key) is not None


def lacks(key: str, *values: Value) -> Condition:
    return lambda config: not has(key, *values)(config)


def names_none(group: str, *names: str) -> Condition:
    """Whether neither a group nor a part inside it has a setting with one of these names."""
    return lambda config: not any(key.rpartition(".")[2] in names for key, _ in paths(at(config, group)))


def paths(settings: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All settings by dotted key, also those of nested parts and the mappings that hold them."""
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            yield f"{prefix}{name}", value
            yield from paths(value, f"{prefix}{name}.")


def _has_known_files(config: Config) -> bool:
    """Whether the data's name identifies its content.

    Only its path identifies a user's own file, or that of an installed package.
    """
    target = str(alike(at(config, "data._target_")))
    is_own = target in (IMAGE_FOLDER, TEXT) or not target.startswith("data.")
    return not is_own and (target != LIBSVM or at(config, "data.name") in LIBSVM_FILES)


def _has_no_buckets(config: Config) -> bool:
    """Whether no step reduces bucket by bucket, as a dense step may do."""
    is_plain = at(config, "wire.values") in (None, DEFAULTS["wire.values"])
    return not is_plain or at(config, "compressor._target_") != NONE


def _has_nothing_to_feed_back(config: Config) -> bool:
    """Whether the compressor is lossless and the feedback only adds what was lost."""
    return at(config, "compressor._target_") == NONE and at(config, "feedback._target_") not in MOMENTA


def _measures_nothing(config: Config) -> bool:
    return not config["diagnostics"].keys() - {"_target_", "every"}


def _has_no_warmup(config: Config) -> bool:
    """Whether the schedule's warm-up ends at the rate at which it begins, and has no other effect."""
    is_flat = has("schedule._target_", WARMUP_STEP)(config) and has("schedule.peak", 1)(config)
    return is_flat and not has("schedule.warmup_epochs", 0)(config)


def _has_no_milestones(config: Config) -> bool:
    return has("schedule._target_", WARMUP_STEP)(config) and has("schedule.milestones", ())(config)


_TESTS_NOTHING = has("data._target_", LIBSVM, "data.convex.least_squares.least_squares")
_NO_TEST = "with this dataset, which has no held-out data"
_NO_GRAPH = "on a model with an analytic gradient"
WITHOUT_EFFECT = (
    # The run as a whole
    WithoutEffect(("name", "output"), "except on the path of the run folder"),
    WithoutEffect(("processes",), "except on how the work is distributed: processes hold the workers"),
    WithoutEffect(("threads", "device"), "except on the hardware used, and so on rounding"),
    WithoutEffect(("kernels",), "except on speed: all kernels give the same bits"),
    refused_where(SINGLE, "isolate", "without -m"),
    WithoutEffect(("isolate", "timeout_seconds"), "except on how processes end"),
    WithoutEffect(("resume",), "except on the first step: the origin records another run's checkpoint"),
    # Trackers, checkpoints and diagnostics only observe
    WithoutEffect(("tracker",), "except on additional copies of the records"),
    refused("checkpoint.redistribute", "without resume=PATH", has("resume", "auto", "never")),
    WithoutEffect(("checkpoint",), "except on the checkpoints that are kept"),
    refused("diagnostics.every", "without diagnostics", _measures_nothing),
    WithoutEffect(("diagnostics",), "except on the metrics: diagnostics only observe"),
    # TrainerSettings
    refused("trainer.bucket_megabytes", "without compressor=none and wire.values=fp32", _has_no_buckets),
    WithoutEffect(
        ("trainer.bucket_megabytes",),
        "except on speed, and on rounding under trainer.reduction=all_reduce",
    ),
    refused("trainer.epochs", "together with trainer.steps={trainer[steps]}", has("trainer.steps")),
    refused("trainer.evaluate_every", _NO_TEST, _TESTS_NOTHING),
    refused("trainer.evaluation_batch_size", _NO_TEST, _TESTS_NOTHING),
    refused_where(NOTHING_HELD_OUT, "trainer.average_reset_epochs", ": this dataset has no held-out data"),
    refused_where(NO_CONVOLUTIONS, "trainer.channels_last", "on a model without convolutions"),
    refused_where(ANALYTIC, "trainer.precision", _NO_GRAPH),
    refused_where(ANALYTIC, "trainer.micro_batch_size", _NO_GRAPH),
    # Data and models
    WithoutEffect(("data.root",), "except on the paths of files", _has_known_files),
    WithoutEffect(("data.download", "data.home", "model.download"), "except on the source of files"),
    WithoutEffect(("data.memory_gib", "data.decoders"), "except on the time at which images are decoded"),
    refused("data.alpha", "with data.partition={data[partition]}", lacks("data.partition", "dirichlet")),
    refused("model.config", "together with model.pretrained={model[pretrained]}", has("model.pretrained")),
    # Optimizers and schedules
    refused(
        "optimizer.lr", "with schedule=autolrs, which searches for it", has("schedule._target_", AUTOLRS)
    ),
    WithoutEffect(("optimizer.decay_momentum",), "without weight decay", has("optimizer.weight_decay", 0)),
    refused(
        "schedule.warmup_share",
        "together with schedule.warmup_epochs={schedule[warmup_epochs]}",
        has("schedule.warmup_epochs"),
    ),
    refused(
        "schedule.warmup_epochs",
        "with schedule.peak=1: the warm-up is from the base rate to schedule.peak times it",
        _has_no_warmup,
        is_in_id=True,
    ),
    refused("schedule.decay", "without schedule.milestones", _has_no_milestones, is_in_id=True),
    # Methods; their settings may also be given as ``budget.NAME``
    WithoutEffect(("budget",), "by itself: its values are those of the compressor"),
    refused(
        "compressor.density",
        "together with compressor.threshold={compressor[threshold]}",
        has("compressor.threshold"),
    ),
    refused(
        "compressor.density",
        "with this compressor, which has no density",
        names_none("compressor", "density", "k_low"),
    ),
    refused(
        "compressor.threshold",
        "with this compressor, which has no threshold",
        names_none("compressor", "threshold"),
    ),
    refused(
        "compressor.schedule",
        "with {compressor[_target_]}, whose density follows no schedule",
        names_none("compressor", "schedule"),
    ),
    refused(
        "compressor.gamma_quantile",
        "with compressor.distribution={compressor[distribution]}",
        lacks("compressor.distribution", "gamma_pareto"),
    ),
    refused("feedback", "with compressor=none, which leaves no residual", _has_nothing_to_feed_back),
    refused("feedback.scale", "with feedback=none", has("feedback._target_", NO_FEEDBACK)),
    refused(
        "feedback.scale",
        "with {feedback[_target_]}, which has no residual",
        has("feedback._target_", *WITHOUT_RESIDUAL),
    ),
)


def without_effect(config: Config, key: str, facts: Set[str] | None = None) -> WithoutEffect | None:
    """The reason why the setting at a dotted key cannot change this config's result; None if it can.

    With ``facts``, only entries that depend on one of these facts are considered.
    """
    for entry in _entries_of(key):
        is_asked = entry.fact is None if facts is None else entry.fact in facts
        if is_asked and entry.applies(config):
            return entry
    return None


@cache
def _entries_of(key: str) -> tuple[WithoutEffect, ...]:
    """The entries of a dotted key and of the groups that hold it."""
    return tuple(
        entry for entry in WITHOUT_EFFECT if any(f"{key}.".startswith(f"{known}.") for known in entry.keys)
    )


def refuse_without_effect(config: Config, keys: Iterable[str], facts: Set[str] | None = None) -> None:
    """Raise ``ValueError`` for a setting among ``keys`` that has no effect at all.

    A whole group is not refused, because it has several settings. ``facts`` as in ``without_effect``.
    """
    for key in sorted(keys):
        if isinstance(at(config, key), Mapping) and "." not in key:
            continue
        group, _, rest = key.partition(".")
        is_budget = group == "budget" and rest != ""
        entry = without_effect(config, f"compressor.{rest}" if is_budget else key, facts)
        if entry is not None and entry.is_refused:
            raise ValueError(entry.message(key, config))
        if is_budget and facts is None:
            _refuse_unread(config, rest)


def _refuse_unread(config: Config, name: str) -> None:
    """Raise ``ValueError`` for a value of the budget that no setting of the compressor takes over."""
    names = (name, "k_low") if name == "density" else (name,)
    own = {
        key: value for key, value in paths(config["compressor"], "compressor.") if key.split(".")[-1] in names
    }
    if own and at(config, f"budget.{name}") not in own.values():
        raise ValueError(f"budget.{name} has no effect with this compressor: set {' or '.join(own)}")
