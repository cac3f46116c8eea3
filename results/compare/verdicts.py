"""Verdicts on whether runs reproduce the published numbers, with reasons."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from results.compare.measures import num_parameters
from results.compare.paper import ERROR_CURVES, EXACT, OFFSETS, TRAININGS, ErrorCurve, Training, Value
from results.read.run import Run

REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE = "reproduced", "not reproduced", "not comparable"
AGREES, DIFFERS = "agrees", "differs"
END_SHARE = 0.1  # last part of a run, over which a noisy quantity is averaged


class Verdict(NamedTuple):
    """Comparison of a row with the paper."""

    word: str
    reason: str
    published: str = ""  # the paper's numbers


class Judgement(NamedTuple):
    """One of the paper's values and ours."""

    value: Value
    numbers: tuple[float, ...]  # one per seed that recorded it
    ratio: float | None  # their mean divided by the paper's value
    word: str


def verdict(runs: Sequence[Run]) -> Verdict:
    """The verdict on the runs of one method in one setting, one per seed."""
    for curve in ERROR_CURVES:
        if all(is_run_of(run, curve) for run in runs):
            return _beside_curve(runs, curve)
    if _model(runs[0]) == "logistic_l2":
        return Verdict(NOT_COMPARABLE, _unlike_curves(runs[0]))
    return Verdict(NOT_COMPARABLE, _unlike_trainings(runs[0]))


def is_run_of(run: Run, curve: ErrorCurve) -> bool:
    """Whether a run has exactly the settings of one of the paper's curves."""
    return not _differences_from_curve(run, curve)


def ours(run: Run, value: Value) -> float | None:
    """The run's number for one of the paper's values; None if the run did not record it.

    The number at the end is the last one. Under SGD it is the mean over the last tenth of the records, except
    for totals, which do not fluctuate.
    """
    curve = run.curve(value.metric)
    if curve.empty or (value.at == "start" and curve.index[0] != 0):
        return None
    if value.at == "start":
        return float(curve.iloc[0])
    if value.at == "peak":
        return float(curve.max())
    fluctuates = run.config["trainer"].get("batch_size") is not None and not value.metric.endswith("_total")
    return float(curve.iloc[-max(1, int(END_SHARE * len(curve))) :].mean() if fluctuates else curve.iloc[-1])


def judged(runs: Sequence[Run], curve: ErrorCurve) -> list[Judgement]:
    """Each of the paper's values compared with the mean over the runs."""
    found = []
    for value in curve.values:
        numbers = [number for run in runs if (number := ours(run, value)) is not None]
        ratio = statistics.mean(numbers) / value.published if numbers else None
        word = "not recorded" if ratio is None else DIFFERS
        if ratio is not None and 1 / value.within <= ratio <= value.within:
            word = AGREES
        found.append(Judgement(value, tuple(numbers), ratio, word))
    return found


def overall(found: Sequence[Judgement]) -> str:
    """ "Reproduced" if every recorded value agrees, and at least one of them was read from a figure."""
    words = [each.word for each in found if each.ratio is not None]
    if not any(each.ratio is not None and each.value.source == "read" for each in found):
        return NOT_COMPARABLE
    return REPRODUCED if set(words) == {AGREES} else NOT_REPRODUCED


def tolerance(value: Value) -> str:
    """The accepted deviation, in words."""
    return f"1/{value.within:g} to {value.within:g}" if value.within > EXACT else f"{value.within - 1:.0e}"


def _beside_curve(runs: Sequence[Run], curve: ErrorCurve) -> Verdict:
    found = judged(runs, curve)
    words = []
    for value, numbers, ratio, word in found:
        name = (
            f"{value.quantity} at its {value.at}"
            if value.at == "peak"
            else f"{value.quantity} at the {value.at}"
        )
        if ratio is None:
            words.append(f"{name} {word}")
        else:
            beside = (
                f"{statistics.mean(numbers):.3g}, {value.source} {value.published:.3g}, ratio {ratio:.3g}"
            )
            words.append(f"{name} {beside} ({tolerance(value)} agrees)")
    words.append(f"missing, since no value of the paper's was read: {', '.join(curve.missing)}")
    published = [f"{value.quantity} {value.at} {value.published:.3g}" for value in curve.values]
    return Verdict(overall(found), "; ".join(words), "; ".join(published))


def _unlike_curves(run: Run) -> str:
    """The reason why a convex run has no comparable curve in the paper."""
    experiment = run.subject
    curves = [curve for curve in ERROR_CURVES if curve.experiment == experiment]
    same = [curve for curve in curves if curve.compressor == run.compressor]
    if same:
        return f"not the paper's setting: {', '.join(_differences_from_curve(run, same[0]))}"
    if curves:
        return f"no value of the paper's was read for {run.compressor} in {experiment}"
    return f"no value of the paper's was read for {experiment}"


def _differences_from_curve(run: Run, curve: ErrorCurve) -> list[str]:
    config = run.config
    optimizer, trainer = config.get("optimizer", {}), config["trainer"]
    pairs = [
        ("name", config["name"], f"{curve.experiment}-{curve.compressor}"),
        *((key, config["compressor"].get(key), value) for key, value in curve.settings.items()),
        ("data", config["data"].get("name"), curve.data),
        ("x0 - x*", config["model"].get("offset"), OFFSETS[curve.data]),
        ("workers", config.get("workers"), curve.workers),
        ("batch per worker", trainer.get("batch_size"), curve.batch_size),
        ("steps", trainer.get("steps"), curve.steps),
        ("feedback", _last(config, "feedback", "ErrorFeedback"), "ErrorFeedback"),
        ("residual by", config["feedback"].get("scale"), "step"),
        ("rate", optimizer.get("lr"), None),
        ("schedule", _last(config, "schedule", "ConstantRate"), "ConstantRate"),
        ("momentum", optimizer.get("momentum", 0.0), 0.0),
        ("weight decay", optimizer.get("weight_decay", 0.0), 0.0),
        ("clip norm", trainer.get("clip_norm"), None),
        ("l2", config["model"].get("l2"), None),
        ("nodes", config.get("nodes"), None),
        ("local steps", _last(config, "local", "every_step"), "every_step"),
        ("values sent as", config.get("wire", {}).get("values", "fp32"), "fp32"),
    ]
    found = _differing(pairs)
    if config["data"].get("partition") not in ("iid", "contiguous"):
        found.append(f"{config['data'].get('partition')} shards")
    return found


def _unlike_trainings(run: Run) -> str:
    """The reason why a network's run has no comparable number in the paper."""
    model = _model(run)
    trainings = [training for training in TRAININGS if training.model == model]
    if not trainings:
        return f"the paper trained no {model}"
    training = min(trainings, key=lambda training: len(_differences_from_training(run, training)))
    found = _differences_from_training(run, training)
    if not found:
        return f"the settings are the paper's for {training.title}, but no number of its figures is known"
    return f"not the paper's {training.title}: {', '.join(found)}"


def _differences_from_training(run: Run, training: Training) -> list[str]:
    config = run.config
    trainer = config["trainer"]
    epochs = trainer.get("epochs") if trainer.get("steps") is None else round(run.summary.get("epoch", 0), 2)
    return _differing(
        [
            ("data", _data(run), training.data),
            ("workers", config.get("workers"), training.workers),
            ("batch per worker", trainer.get("batch_size"), training.batch_size),
            ("epochs", epochs, training.epochs),
            ("rate", config.get("optimizer", {}).get("lr"), training.lr),
            ("parameters", num_parameters(run), training.num_parameters),
        ]
    )


def _differing(pairs: Sequence[tuple[str, object, object]]) -> list[str]:
    """``name ours instead of theirs`` for every pair that differs."""
    return [
        f"{name} {_plain(ours)} instead of {_plain(theirs)}" for name, ours, theirs in pairs if ours != theirs
    ]


def _plain(value: object) -> str:
    if value is None:
        return "unset"
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _last(config: Mapping[str, Any], group: str, usual: str) -> str:
    """The name of a group's class or function, ``usual`` if the config lacks the group."""
    target = str(config.get(group, {}).get("_target_", usual)).rpartition(".")[2]
    return usual if target == "Constant" else target  # the first name of ``ConstantRate``


def _model(run: Run) -> str:
    return run.config["model"]["_target_"].rsplit(".", 1)[-1]


def _data(run: Run) -> str:
    """The dataset, with its size or file if the name does not determine them."""
    data = run.config["data"]
    return " ".join(filter(None, (data["_target_"].rsplit(".", 1)[-1], data.get("name"))))
