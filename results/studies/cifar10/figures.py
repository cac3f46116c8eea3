"""Figures of CIFAR-10: accuracy over bytes; density, total error and ||p|| over epochs; losses by workers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from results.compare.measures import num_parameters
from results.figures import sheet
from results.figures.description import Panel, curves, points
from results.figures.groups import code_note, other_seeds, seeds_of
from results.figures.metrics import DENSITY, EPOCHS, FINAL_BYTES, LOSS, TOTAL_ERROR, Metric
from results.figures.panels import MOST_POINTS, NothingToDraw
from results.figures.saving import Figures
from results.figures.style import Styled, line_styles
from results.read.naming import lambda_in_force
from results.read.run import Run
from results.studies.cifar10.sections import NONE, THREE, WHOLE, WORKERS, Methods, by_section

HEIGHT = 3.2  # of a panel, inches
ACCURACY = Metric(
    "test/accuracy",
    "test accuracy, % (higher is better)",
    factor=100,
    can_be_logarithmic=False,
    limit=100,
)
SQUARED_NORM = "compression/input_norm_squared"
COLOUR_OF_WORKERS = "qsgd"  # lines of several numbers of workers are shades of this method's colour


def _norm(run: Run) -> pd.Series:
    return run.curve(SQUARED_NORM) ** 0.5


def _in_entries(run: Run) -> pd.Series:
    """lambda over the root mean square of p's entries; empty for a method without lambda."""
    threshold, size = lambda_in_force(run), num_parameters(run)
    if threshold is None or size is None:
        return run.curve("no threshold")
    return threshold * math.sqrt(size) / _norm(run)


NORM = Metric("norm", "||p||, root mean square over workers", noisy=True, short="||p||", quantity=_norm)
IN_ENTRIES = Metric(
    "relative", "lambda over the root mean square of p", noisy=True, short="lambda", quantity=_in_entries
)

Drawn = dict[str, list[Run]]  # by label


def figures(runs: Sequence[Run], tried: Sequence[Run]) -> Figures:
    """The figures of the page, with their file names."""
    found = by_section(runs)
    main = _drawn(found["main"])
    yield "accuracy_bytes", partial(_accuracy, main)
    yield "density", partial(_over_epochs, _compressed(main), DENSITY, "Density over epochs")
    yield "total_error", partial(_over_epochs, _compressed(main), TOTAL_ERROR, "Total error over epochs")
    yield "norm_threshold", partial(_norms, main)
    yield "workers", partial(_workers, {number: found[f"workers {number}"] for number in WORKERS})


def _drawn(methods: Methods) -> Drawn:
    """The methods except thresholds for the whole model, whose runs are bit-identical to those for layers."""
    return {
        label: list(of_seed.values())
        for label, of_seed in methods.items()
        if not (label.startswith("threshold") and label.endswith(WHOLE))
    }


def _compressed(methods: Drawn) -> Drawn:
    return {label: runs for label, runs in methods.items() if label != NONE}


def _accuracy(methods: Drawn) -> Any:
    _require(methods)
    joined: dict[str, list[str]] = {}
    for label in methods:
        joined.setdefault(_family(label), []).append(label)
    panel = points(methods, FINAL_BYTES, ACCURACY, [names for names in joined.values() if len(names) > 1])
    return _sheet("Accuracy over bytes on the link", methods, [[panel]])


def _over_epochs(methods: Drawn, what: Metric, title: str) -> Any:
    _require(methods)
    return _sheet(title, methods, [[curves(methods, EPOCHS, what, MOST_POINTS)]])


def _norms(methods: Drawn) -> Any:
    """||p|| of all methods and, below it, each lambda over the root mean square of p's entries."""
    _require(_compressed(methods))
    thresholds = {label: runs for label, runs in methods.items() if lambda_in_force(runs[0]) is not None}
    panels = [[curves(methods, EPOCHS, NORM, MOST_POINTS)]]
    if thresholds:
        panels.append([curves(thresholds, EPOCHS, IN_ENTRIES, MOST_POINTS)])
    return _sheet("Norm of the compressor's input p, and the threshold beside it", methods, panels)


def _workers(found: Mapping[int, Methods]) -> Any:
    """A panel per method, a line per number of workers."""
    panels: list[Panel] = []
    drawn: dict[str, list[Run]] = {}
    for label in THREE:
        own = {
            _workers_label(number): list(methods[label].values())
            for number, methods in found.items()
            if label in methods
        }
        if own:
            panels.append(replace(curves(own, EPOCHS, LOSS, MOST_POINTS), title=label))
            drawn = own if len(own) > len(drawn) else drawn
    if not panels:
        raise NothingToDraw("no run of another number of workers")
    lines = [
        Styled(name, compressor=COLOUR_OF_WORKERS, family="", order=(place,))
        for place, name in enumerate(drawn)
    ]
    labels = {name: name for name in drawn}
    title = "Training loss by number of workers, at equal samples"
    return sheet.draw(title, _facts(drawn), [panels], line_styles(lines, True), labels, share_y=True)


def _workers_label(number: int) -> str:
    return f"{number} worker{'s' * (number > 1)}"


def _sheet(title: str, methods: Drawn, panels: Sequence[Sequence[Any]]) -> Any:
    lines = [
        Styled(label, runs[0].compressor, _family(label), (_sent(runs),)) for label, runs in methods.items()
    ]
    labels = {label: f"{label}{others}" for label, others in other_seeds(methods).items()}
    every = [run for runs in methods.values() for run in runs]
    noted = [note] if (note := code_note(every)) else []
    title = f"CIFAR-10, ResNet-20. {title}"
    styles = line_styles(lines, marked=True)
    return sheet.draw(title, _facts(methods), panels, styles, labels, notes=noted, height=HEIGHT)


def _facts(methods: Mapping[str, Sequence[Run]]) -> str:
    run = next(iter(methods.values()))[0]
    numbers = sorted({run.workers for runs in methods.values() for run in runs})
    workers = f"{numbers[0]} workers, " if len(numbers) == 1 else ""
    return f"{workers}{run.config['trainer']['epochs']:g} epochs of 50,000 images; {seeds_of(methods)}"


def _family(label: str) -> str:
    """The label without its numbers, which all densities on one line share."""
    words = [
        word for word in label.split() if not word.rstrip("%,").replace(".", "").isdigit() and word != "%"
    ]
    return " ".join(words).replace(" %", "") + (WHOLE if label.endswith(WHOLE) else "")


def _sent(runs: Sequence[Run]) -> float:
    return sum(run.summary[FINAL_BYTES.name] for run in runs) / len(runs)


def _require(methods: Drawn) -> None:
    if not methods:
        raise NothingToDraw("no run of the comparison")
