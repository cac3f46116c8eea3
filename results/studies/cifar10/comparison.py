"""The comparison of methods with equal training settings: a row per method, and the differences shown."""

import statistics
from collections.abc import Mapping

from results.command import paragraph
from results.compare.joint_intervals import LEAST_SEEDS, NOT_SHOWN, joint_interval
from results.escaping import in_markdown
from results.read.naming import lambda_in_force
from results.studies.cifar10.cells import (
    ACCURACY,
    BYTES,
    COSTS,
    NOT_RUN,
    accuracy,
    cost,
    minus,
    shown,
)
from results.studies.cifar10.places import NONE, WHOLE, Methods, labels_of
from results.studies.kit import Seeds, differences, first_of, paired, table

EITHER = ", either scope"  # end of the label of a row for both
NEAR = 0.25  # largest difference of a method's bytes from those of the Top-k beside it, as a share


def table_of(section: str, methods: Methods, main: Methods) -> str:
    """A row per label, with or without runs, with differences from ``none`` and Top-k of ``main``.

    Two scopes whose trainings are equal have one row: that of the layers, with what differs after it.
    """
    head = ["method", "lambda", "seeds", ACCURACY.label, "minus none", "minus Top-k at its bytes", "beside"]
    head += [measure.label for measure in COSTS]
    rows = []
    for label in labels_of(section, methods):
        if label not in methods:
            rows.append([label, "-", "-", NOT_RUN, *["-"] * (len(head) - 4)])
            continue
        own = methods[label]
        beside = _top_k_beside(label, own, main)
        difference = paired(ACCURACY, own, main[beside]) if beside else None
        cells = [label, _lambda(own), ", ".join(map(str, own)), accuracy(own)]
        cells += [minus(own, main.get(NONE)) if label != NONE else "-", shown(difference)]
        cells += [f"{_ratio(own, main[beside]):.2f} x {beside}" if difference and beside else "-"]
        rows.append([*cells, *(cost(measure, own) for measure in COSTS)])
        if _is_whole(label) and _are_equal(own, methods.get(label.removesuffix(WHOLE), {})):
            whole, layers = rows.pop(), next(row for row in rows if row[0] == label.removesuffix(WHOLE))
            layers[0] += EITHER
            layers[1:] = [
                of_layers if of_layers == of_whole else f"{of_layers}; {of_whole}"
                for of_layers, of_whole in zip(layers[1:], whole[1:], strict=True)
            ]
    return table(head, rows)


def _are_equal(own: Seeds, other: Seeds) -> bool:
    """Whether two methods have the same accuracy and total error for the same seeds."""
    return own.keys() == other.keys() and all(
        measure.value(own[seed]) == measure.value(other[seed])
        for seed in own
        for measure in (ACCURACY, COSTS[1])
    )


def _lambda(own: Seeds) -> str:
    threshold = lambda_in_force(first_of(own))
    return "-" if threshold is None else f"{threshold:.4g}"


def _ratio(own: Seeds, other: Seeds) -> float:
    """Ratio of bytes, each the mean over its seeds; infinite if ``other`` sent none."""
    ours, theirs = (statistics.fmean(BYTES.values(list(each.values()))) for each in (own, other))
    return ours / theirs if theirs else float("inf")


def _top_k_beside(label: str, own: Seeds, main: Methods) -> str | None:
    """The Top-k of the same scope with the nearest bytes; None if none is within ``NEAR``, and for Top-k."""
    away = {
        name: abs(_ratio(own, each) - 1)
        for name, each in main.items()
        if name.startswith("Top-k") and not label.startswith("Top-k") and _is_whole(name) == _is_whole(label)
    }
    nearest = min(away, key=lambda name: away[name], default=None)
    return nearest if nearest is not None and away[nearest] <= NEAR else None


def _is_whole(label: str) -> bool:
    return label.endswith(WHOLE)


def in_words(sections: Mapping[str, Methods], main: Methods) -> str:
    """A paragraph on the differences in accuracy, by joint intervals for all comparisons; may be empty."""
    comparisons: list[tuple[str, str, list[float]]] = []
    for methods in sections.values():
        for label, own in methods.items():
            for other in (NONE, _top_k_beside(label, own, main)):
                values = differences(ACCURACY, own, main.get(other or "", {}))
                if other not in (None, label) and len(values) >= LEAST_SEEDS:
                    comparisons.append((label, str(other), values))
    if not comparisons:
        return ""
    said: dict[str, list[str]] = {}
    for label, other, values in comparisons:
        word = joint_interval(values, len(comparisons)).word("higher", "lower")
        said.setdefault(word, []).append(f"{label} beside {other}")
    shown = ". ".join(f"{word.capitalize()}: {'; '.join(where)}" for word, where in said.items())
    return paragraph(
        f"""**Accuracy, here, over three seeds or more. {in_markdown(shown)}.** These words follow intervals
        for the {len(comparisons)} such looks (Bonferroni), which all hold together in at least 95 % of such
        experiments; "{NOT_SHOWN}" where one holds 0, which is no proof of equality."""
    )
