"""Studies as data: results/pages/NAME/study.yaml says what is compared, page.md.j2 is the page.

study.yaml has ``question``; ``needs``, metrics without which a run is left out; ``option``, further runs;
``methods``, a label and the settings of its runs each; ``measures``, metric, label, factor and digits each;
``primary`` and ``comparisons``, pairs of methods, compared by the first measure, after a primary pair the
first seed that was not known when the pair was named or seeds were added; ``margin``, by metric, within
which two methods are as good; ``figures``, curves over epochs and points of two measures. ``code`` lists what
results/studies/NAME has: ``names`` for the template, other ``figures``, ``data`` of NAME.json beside it, or
``training``, a module with ``add_options`` and ``run``, for a study without a sweep. A template's
paragraphs are wrapped, except texts with the filter ``line``.
"""

import importlib
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from results.command import paragraph
from results.compare.measures import LINK_BYTES, Measure, num_parameters, qualities, require_several_workers
from results.compare.statistics import FEWEST_SEEDS, WITHOUT_INTERVAL
from results.escaping import code, in_markdown
from results.figures import metrics, sheet
from results.figures.description import curves, points
from results.figures.groups import Group, groups, other_seeds, seeds_of, styles_of
from results.figures.panels import MOST_POINTS
from results.figures.saving import Figures
from results.read.matching import by_key, by_setting
from results.read.naming import asked, lambda_in_force
from results.read.run import Run
from results.studies.kit import Option, Seeds, Study, by_name, first_of, notes, paired, values_of
from results.studies.looks import COLUMNS, comparisons, judged, look, looks, new_seeds, verdicts

Methods = dict[str, Seeds]  # by label
_UNBROKEN = "\0"  # a blank at which no line is broken


def of_folder(folder: Path) -> Study:
    """The study that ``folder`` describes."""
    told = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    own = importlib.import_module(f".{folder.name}", __package__) if "code" in told else None
    parts = {part: getattr(own, part) for part in told.get("code", ())}
    drawn = partial(figures, folder.name, told) if "figures" in told else None
    return Study(
        name=folder.name,
        question=told["question"],
        outputs=tuple(told.get("outputs", ())),
        table=told.get("table", ""),
        page=partial(page, folder, told, parts.get("names", lambda *_: {})),
        figures=parts.get("figures", drawn),
        data=parts.get("data"),
        needs=tuple(told.get("needs", [LINK_BYTES])),
        run_names=told.get("run_names", ""),
        option=Option(**told["option"]) if "option" in told else None,
        curves=tuple(told["curves"]) if "curves" in told else None,
        train=parts.get("training"),
    )


def page(
    folder: Path,
    told: Mapping[str, Any],
    names: Callable[..., dict[str, Any]],
    runs: Sequence[Run],
    further: Sequence[Run] = (),
) -> str:
    """The page of ``runs``; ``further`` are those of the option, ``names`` makes names for the template.

    Raises ``ValueError`` for runs that are not of the study.
    """
    import jinja2

    if "code" not in told:
        require_several_workers(runs)
    methods = methods_of(folder.name, told, runs)
    measures = measures_of(told)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"md": in_markdown, "code": code, "cell": _cell, "line": _line}
    template = environment.from_string((folder / "page.md.j2").read_text(encoding="utf-8"))
    text = template.render(
        _functions(told, measures) | names(runs, further),
        runs=runs,
        methods=methods,
        further=methods_of(folder.name, told, further) if further and "code" not in told else {},
        groups=partial(groups, runs),
        measures=measures,
        looks=looks(told, methods, next(iter(measures.values()))) if methods else [],
        study=told,
        COLUMNS=COLUMNS,
        WITHOUT_INTERVAL=WITHOUT_INTERVAL,
    )
    return "\n".join(map(_wrapped, re.split(r"\n{2,}", text.strip()))).replace(_UNBROKEN, " ")


def _cell(text: object) -> str:
    """Text as code in a cell of a table."""
    return code(text).replace("|", "\\|")


def _line(text: str) -> str:
    return text.replace(" ", _UNBROKEN)


def _wrapped(block: str) -> str:
    return paragraph(block) if block[0] not in "#|-!" else f"{block}\n"


def _functions(told: Mapping[str, Any], measures: Mapping[str, Measure]) -> dict[str, Callable[..., Any]]:
    """The functions of a template; methods are given by their runs, measures by their name."""

    def minus(measure: Measure, ours: Seeds, theirs: Seeds | None) -> str:
        found = paired(measure, ours, theirs) if theirs else None
        return measure.difference(*found) if found else "-"

    def mean(name: str, own: Seeds) -> float:
        return statistics.fmean(measures[name].values(list(own.values())))

    def spreads(own: Seeds, *names: str) -> str:
        runs = list(own.values())
        return " | ".join(measures[name].spread(runs) for name in names or measures)

    functions = by_name(
        asked, comparisons, first_of, lambda_in_force, mean, minus, near, new_seeds, notes, num_parameters
    )
    return functions | {
        **by_name(spreads, verdicts),
        "judged": partial(judged, told),
        "look": partial(look, told),
        "pairs": lambda name, ours, theirs: values_of(measures[name], ours, theirs),
        "seeds": lambda own: ", ".join(map(str, own)),
        "by_seed": lambda runs: {run.seed: run for run in runs},
        "quality": _quality,
    }


def _quality(group: Group) -> Measure:
    """The measure of quality of a problem. Raises ``ValueError`` if its runs have none."""
    if found := qualities(group.runs):
        return found[0]
    raise ValueError(f"{group.subject}: no run has a quality that tables know")


def measures_of(told: Mapping[str, Any]) -> dict[str, Measure]:
    """The measures of study.yaml, by name."""
    return {
        name: Measure.recorded(**{"name" if key == "metric" else key: word for key, word in words.items()})
        for name, words in told.get("measures", {}).items()
    }


def methods_of(name: str, told: Mapping[str, Any], runs: Sequence[Run]) -> Methods:
    """The runs by label and seed, in the order of study.yaml; empty if it has no methods.

    Raises ``ValueError`` for a run of none of them, and, if all are required, for other settings than one and
    for missing methods.
    """
    rules = told.get("methods", {})

    def label_of(run: Run) -> str:
        for label, rule in rules.items():
            if all(_has(run, key, value) for key, value in rule.items()):
                return label
        raise ValueError(f"{run.path}: runs of {name} must be of {', '.join(rules)}, got {run.method}")

    if not rules:
        return {}
    if told.get("one_setting"):
        processes = {each.get("processes", 1) for run in runs for each in (run.config, run.environment)}
        if processes != {1}:
            raise ValueError(f"runs of this page must be of one process, got {max(processes)}")
        if len(by_setting(runs)) != 1:
            raise ValueError("runs of this page must differ in method and seed alone")
    found = by_key(runs, label_of)
    missing = [label for label in rules if label not in found]
    if missing and told.get("one_setting"):
        raise ValueError(f"runs must be of {', '.join(rules)}, got none of {', '.join(missing)}")
    return {label: found[label] for label in rules if label in found}


def _has(run: Run, key: str, value: object) -> bool:
    settings = run.config["compressor"]
    if key == "compressor":
        return run.compressor == value
    if key == "matched":  # the name of a threshold in a file of chosen ones
        return run.config["budget"].get("matched", {}).get(value) == settings["threshold"]
    if key in ("name", "partition"):
        return (run.config if key == "name" else run.config["data"]).get(key) == value
    return settings.get(key) == value


def near(group: Group, compressor: str, share: float) -> tuple[str | None, list[str]]:
    """The group's only method of ``compressor``, and those with its bytes, to within ``share``.

    The latter have enough seeds for an interval. None and no methods if there is not exactly one.
    """
    found = [method for method, runs in group.methods.items() if runs[0].compressor == compressor]
    if len(found) != 1:
        return None, []
    sent = {
        method: statistics.mean(run.summary[LINK_BYTES] for run in runs)
        for method, runs in group.methods.items()
    }
    seeds = {method: {run.seed for run in runs} for method, runs in group.methods.items()}
    return found[0], [
        method
        for method in group.methods
        if method != found[0]
        and abs(sent[method] / sent[found[0]] - 1) <= share
        and len(seeds[method] & seeds[found[0]]) >= FEWEST_SEEDS
    ]


def figures(name: str, told: Mapping[str, Any], runs: Sequence[Run], further: Sequence[Run] = ()) -> Figures:
    """The figures of study.yaml: curves over epochs and points at the end, of several methods."""
    found = {label: list(own.values()) for label, own in methods_of(name, told, runs).items()}
    drawn = {key: metrics.of_measure(measure) for key, measure in measures_of(told).items()}
    for stem, words in told["figures"].items():
        methods = {label: own for label, own in found.items() if label in words.get("methods", found)}
        if len(methods) < 2:
            continue
        labels = {label: f"{label}{others}" for label, others in other_seeds(methods).items()}
        panels = [points(methods, drawn[x], drawn[y], families=[]) for x, y in words.get("points", ())]
        for each in words["curves"]:
            what = drawn.get(each) or getattr(metrics, each)
            panels.append(curves(methods, metrics.EPOCHS, what, MOST_POINTS))
        draw = partial(sheet.draw, words["title"], seeds_of(methods), [panels], styles_of(methods), labels)
        yield stem, draw
