"""Sections of the page on CIFAR-10, the methods of each section, and the section and label of a run."""

from collections.abc import Sequence

from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import Seeds
from trainers.identity.identity import NO_FEEDBACK

EF21 = "compressors.feedback.EF21"
MATCHED = {
    "one_percent": "1 %",
    "tenth_percent": "0.1 %",
}  # Top-k's density, by name in sweeps/cifar10/chosen/thresholds.yaml
WHOLE = ", whole model"
NONE, TOP_K, RULE = "none", "Top-k {}", "threshold, rule for {}"
EQUAL = "threshold, bytes of Top-k {}"  # lambda was found by pilots
ACCORDION = "ACCORDION 0.1 or 1 %"
EF21_TOP_K = "EF21 around Top-k 1 %"
DENSITIES = ("1 %", "0.1 %")
WORKERS = (1, 2, 4, 8, 16)
PARTITIONS = {"by_label": "by label", "dirichlet": "Dirichlet(0.1)"}
OF_RESNET18 = (NONE, TOP_K.format("0.1 %"), RULE.format("0.1 %"), ACCORDION)
THREE = (NONE, TOP_K.format("1 %"), EQUAL.format("1 %"))
FIRST = (
    NONE,
    *(TOP_K.format(density) + scope for density in DENSITIES for scope in ("", WHOLE)),
    *(EQUAL.format(density) + scope for density in DENSITIES for scope in ("", WHOLE)),
)

# The methods of each section when all sweeps have finished
SECTIONS: dict[str, tuple[str, ...]] = {
    "main": (
        *FIRST,
        *(RULE.format(density) for density in DENSITIES),
        "random block 10 %",
        "random block 1 %",
    ),
    "neighbours": ("DGC 0.1 %", "PowerSGD of rank 2", "EF-sign", "QSGD with 4 bits", EF21_TOP_K),
    "ten epochs": FIRST,
    "stepped": (NONE, RULE.format("0.1 %"), ACCORDION),
    "feedback": THREE[1:],
    **dict.fromkeys(PARTITIONS, THREE),
    **{f"workers {number}": THREE for number in WORKERS},
    "precision": (NONE,),
    "resnet18": OF_RESNET18,
    "resnet18, short warm-up": OF_RESNET18,
}

Methods = dict[str, Seeds]  # by label


def section_of(run: Run) -> str:
    """The section of a run, by the settings in which it differs from the main comparison."""
    config = run.config
    if config["model"]["_target_"].endswith("resnet18"):
        return "resnet18, short warm-up" if config["schedule"]["warmup_epochs"] < 5 else "resnet18"
    if config["trainer"]["precision"] == "fp32":
        return "precision"
    if (partition := config["data"]["partition"]) != "iid":
        return str(partition)
    if config["trainer"]["epochs"] == 10:
        return "ten epochs"
    if config["trainer"]["epochs"] != 5:
        return f"workers {config['workers']}"
    if config["schedule"]["_target_"].endswith("WarmupStep"):
        return "stepped"
    label = label_of(run)
    if is_without_feedback(run) and label in SECTIONS["feedback"]:
        return "feedback"
    return "neighbours" if label in SECTIONS["neighbours"] else "main"


def is_without_feedback(run: Run) -> bool:
    return run.config["feedback"]["_target_"] == NO_FEEDBACK


def label_of(run: Run) -> str:
    """The method with its setting, as named on the page."""
    settings = run.config["compressor"]
    whole = WHOLE if run.config["scope"] == "global" else ""
    density = f"{100 * settings.get('density', 0):g} %"
    if run.compressor == "none":
        return NONE
    if run.config["feedback"]["_target_"] == EF21:
        return f"EF21 around Top-k {density}{whole}"
    if run.compressor == "hard_threshold":
        return _threshold(run, density) + whole
    said = {
        "top_k": TOP_K.format(density),
        "random_block": f"random block {density}",
        "dgc": f"DGC {density}",
        "powersgd": f"PowerSGD of rank {settings.get('rank')}",
        "ef_sign": "EF-sign",
        "qsgd": f"QSGD with {settings.get('bits')} bits",
        "accordion": f"ACCORDION {100 * settings.get('k_low', 0):g} or {100 * settings.get('k_high', 0):g} %",
    }
    return said.get(run.compressor, run.method) + whole


def _threshold(run: Run, density: str) -> str:
    threshold = run.config["compressor"]["threshold"]
    if threshold is None:
        return RULE.format(density)
    for name, value in (run.config["budget"].get("matched") or {}).items():
        if value == threshold and name in MATCHED:
            return EQUAL.format(MATCHED[name])
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
