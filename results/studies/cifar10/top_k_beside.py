"""Methods of CIFAR-10 beside the Top-k of nearest bytes, and the rows of both scopes as one."""

import statistics
from collections.abc import Callable, Iterator, Mapping

from results.compare.measures import LINK_BYTES, Measure
from results.compare.statistics import FEWEST_SEEDS
from results.studies.cifar10.sections import FIVE_SEEDS, NONE, WHOLE, Methods
from results.studies.kit import Seeds
from results.studies.looks import Look

SAME = ("test/accuracy", "compression/total_error")  # in equal trainings
EITHER = ", either scope"  # end of the label of a row for both
NEAR = 0.25  # largest difference of a method's bytes from those of the Top-k beside it, as a share


def ratio_of_bytes(own: Seeds, other: Seeds) -> float:
    """Ratio of bytes, each the mean over its seeds; infinite if ``other`` sent none."""
    ours, theirs = (
        statistics.fmean(run.summary[LINK_BYTES] for run in each.values()) for each in (own, other)
    )
    return ours / theirs if theirs else float("inf")


def top_k_beside(label: str, own: Seeds, main: Methods) -> str | None:
    """The Top-k of the same scope with the nearest bytes; None if none is within ``NEAR``, and for Top-k."""
    if label.startswith("Top-k"):
        return None
    away = {
        name: abs(ratio_of_bytes(own, each) - 1)
        for name, each in main.items()
        if name.startswith("Top-k") and name.endswith(WHOLE) == label.endswith(WHOLE)
    }
    nearest = min(away, key=lambda name: away[name], default=None)
    return nearest if nearest is not None and away[nearest] <= NEAR else None


def looks_of(
    look: Callable[..., Look | None], measure: Measure, found: Mapping[str, Methods]
) -> Iterator[Look | None]:
    """The comparisons with ``none`` and Top-k that have enough common seeds, by ``look`` of the engine.

    The five seeds have a threshold's training of one scope, which is compared with Top-k of both.
    """
    for section in (FIVE_SEEDS, "ten epochs", "main"):
        for label, own in found[section].items():
            beside = top_k_beside(label, own, found[section])
            whole = f"{beside}{WHOLE}" if beside and section == FIVE_SEEDS else None
            for other in (NONE, beside, whole):
                theirs = found[section].get(other or "", {})
                if other not in (None, label) and len(own.keys() & theirs.keys()) >= FEWEST_SEEDS:
                    one = label if section == "main" else f"{section}: {label}"
                    yield look(measure, one, other, own, theirs)


def with_equal_scopes(rows: Mapping[str, list[str]], methods: Methods) -> dict[str, list[str]]:
    """``rows`` of cells by label; two scopes whose trainings are equal share that of the layers.

    Where a cell of the whole model differs, it comes after that of the layers.
    """
    shown, both = dict(rows), set()
    for label in rows:
        layers = label.removesuffix(WHOLE)
        if label != layers and _are_equal(methods.get(label, {}), methods.get(layers, {})):
            pairs = zip(rows[layers], shown.pop(label), strict=True)
            shown[layers] = [one if one == other else f"{one}; {other}" for one, other in pairs]
            both.add(layers)
    return {f"{label}{EITHER}" if label in both else label: cells for label, cells in shown.items()}


def _are_equal(own: Seeds, other: Seeds) -> bool:
    """Whether two methods have runs, of the same seeds, with the same accuracy and total error."""

    def ends(runs: Seeds) -> dict[int, list[float | None]]:
        return {seed: [run.summary.get(name) for name in SAME] for seed, run in runs.items()}

    return bool(own) and ends(own) == ends(other)
