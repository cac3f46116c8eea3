"""The section and label of a run of the CIFAR-10 study; study.yaml has the labels of each section."""

from collections.abc import Sequence

import yaml

from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import PAGES, ROOT, Seeds

MATCHED = {  # Top-k's density, by name in sweeps/cifar10/chosen/thresholds.yaml
    "one_percent": "1 %",
    "tenth_percent": "0.1 %",
}
WHOLE = ", whole model"
NONE = "none"
WORKERS = (1, 2, 4, 8, 16)
FIVE_SEEDS = "five seeds"
_TOLD = yaml.safe_load((ROOT / PAGES / "cifar10/study.yaml").read_text(encoding="utf-8"))
SECTIONS: dict[str, list[str]] = _TOLD["sections"]
THREE = SECTIONS["workers 1"]  # of every section of workers

Methods = dict[str, Seeds]  # by label


def section_of(run: Run) -> str:
    """The section of a run, by the settings in which it differs from the main comparison."""
    config = run.config
    if config["trainer"]["epochs"] == 100:
        return "100 epochs"
    if config["trainer"]["precision"] == "fp32":
        return "precision" if run.compressor == NONE else FIVE_SEEDS
    if config["trainer"]["epochs"] == 10:
        return "ten epochs"
    if config["trainer"]["epochs"] != 5:
        return f"workers {config['workers']}"
    return "main"


def label_of(run: Run) -> str:
    """The method with its setting, as named on the page."""
    settings = run.config["compressor"]
    density = f"{100 * settings.get('density', 0):g} %"
    said = {
        "hard_threshold": _threshold(run, density),
        "top_k": f"Top-k {density}",
    }
    if run.compressor == NONE:
        return NONE
    whole = WHOLE if run.config["scope"] == "global" else ""
    return said.get(run.compressor, run.method) + whole


def label_of_tried(run: Run) -> str:
    """The method of a run that tried a learning rate; lambdas have a column of their own."""
    return "threshold" if run.config["compressor"].get("threshold") is not None else label_of(run)


def _threshold(run: Run, density: str) -> str:
    threshold = run.config["compressor"].get("threshold")
    if threshold is None:
        return f"threshold, rule for {density}"
    for name, value in (run.config["budget"].get("matched") or {}).items():
        if value == threshold and name in MATCHED:
            return f"threshold, bytes of Top-k {MATCHED[name]}"
    return f"threshold {threshold:g}"


def by_section(runs: Sequence[Run]) -> dict[str, Methods]:
    """Runs by section, label and seed, in the order of ``SECTIONS``; sections without a run are empty.

    Raises ``ValueError`` for two runs of one section and label that differ in more than their seed, and for a
    run of an unknown section.
    """
    found: dict[str, Methods] = {}
    for section, labels in SECTIONS.items():
        own = by_key([run for run in runs if section_of(run) == section], label_of)
        known = {label: own[label] for label in labels if label in own}
        found[section] = known | own
    unknown = sorted({section_of(run) for run in runs} - set(SECTIONS))
    if unknown:
        raise ValueError(f"runs must be of the study's sweeps, got {', '.join(unknown)}")
    return found


def missing(section: str, methods: Methods) -> list[str]:
    """The labels of a section that have no run."""
    return [label for label in SECTIONS[section] if label not in methods]


def labels_of(section: str, methods: Methods) -> list[str]:
    """The labels that a section should have, then any other labels of its runs."""
    return list(dict.fromkeys([*SECTIONS[section], *methods]))
