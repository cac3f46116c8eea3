"""Names of methods in tables and figures: effective lambda, reached density, short names of parts."""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from results.read.run import Run
from trainers.identity.identity import Word, is_number, named

THRESHOLD, DENSITY, PART = "compressor.threshold", "compressor.density", "._target_"
REACHED = "compression/density_mean"
NEAR = 0.05  # relative difference up to which the reached density is not shown

Methods = Mapping[str, Sequence[Run]]


def lambda_in_force(run: Run) -> float | None:
    """The effective hard threshold of a run; None for other methods and if it was not recorded."""
    return run.summary.get("compression/threshold") if run.compressor == "hard_threshold" else None


def asked(run: Run) -> str:
    """The requested lambda or density of a method, or a dash."""
    settings = run.config["compressor"]
    threshold, density = settings.get("threshold"), settings.get("density")
    if isinstance(threshold, (int, float)):
        return f"lambda {threshold:.4g}"
    return f"density {_per_cent(density)}" if isinstance(density, (int, float)) else "-"


def order(run: Run) -> tuple[str, list[tuple[str, float]], str]:
    """Sort key of methods: by family, then by lambda or other numbers, then by the text."""
    found, threshold = run.identity.method.order, lambda_in_force(run)
    return found if threshold is None else (found[0], [("lambda", threshold)], found[2])


def names(methods: Methods) -> dict[str, str]:
    """Names of methods in tables; methods whose names would be equal keep their keys."""
    return _with_unique_names({key: ", ".join(_words(runs)) for key, runs in methods.items()})


def short_names(methods: Methods) -> dict[str, str]:
    """Names of methods in one figure: without ``common_words``, densities in per cent."""
    common = common_words(methods)
    said = {
        key: ", ".join(word for word in _words(runs, per_cent=True) if word not in common)
        for key, runs in methods.items()
    }
    return _with_unique_names(said)


def common_words(methods: Methods) -> list[str]:
    """Settings without a number, such as "feedback.scale step", that all methods except ``none`` have.

    Empty for fewer than two such methods.
    """
    compressed = [runs for runs in methods.values() if runs[0].compressor != "none"]
    words = [_words(runs, numbers=False)[1:] for runs in compressed]
    return [word for word in words[0] if all(word in each for each in words)] if len(words) > 1 else []


def name_of(run: Run) -> str:
    """The name of a run's method in tables."""
    return ", ".join(_words([run]))


def legends(methods: Methods) -> dict[str, str]:
    """Labels of methods, keyed by name, with the reached density if it differs from the requested one."""
    return {name: f"{name} ({sent})" if (sent := _reached(runs)) else name for name, runs in methods.items()}


def family(run: Run) -> str:
    """The name without numbers, common to all settings on one line of a figure."""
    return ", ".join(_words([run], numbers=False))


def part_name(target: str) -> str:
    """The name of a part on the command line: ef21 for ``compressors.feedback.EF21``."""
    known = named(target)
    if "." not in known and not known.startswith('"'):
        return known
    last = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", target.rpartition(".")[2]).lower()
    return last if last.isidentifier() else known


def unused(stem: str, used: Iterable[str]) -> str:
    """The stem or, if it is used, the stem with the first unused number from 2 on."""
    used, number, candidate = set(used), 2, stem
    while candidate in used:
        candidate, number = f"{stem}-{number}", number + 1
    return candidate


def _words(runs: Sequence[Run], *, per_cent: bool = False, numbers: bool = True) -> list[str]:
    method = runs[0].identity.method
    values, threshold = dict(method.settings), lambda_in_force(runs[0])
    said = [method.composition or part_name(str(values["compressor._target_"]))]
    for word in method.words:
        if word.number is not None and not numbers:
            continue
        text = word.text
        if threshold is not None and word.key in (THRESHOLD, DENSITY):
            text = f"lambda {threshold:.4g}" if numbers else ""
        elif word.key == DENSITY and word.number is not None and per_cent:
            text = f"density {_per_cent(word.number)}"
        elif _names_part(word):
            group = word.key.removesuffix(PART).removeprefix("compressor.")
            text = f"{group}: {part_name(str(values[word.key]))}"
        if text and text not in said:
            said.append(text)
    return said


def _names_part(word: Word) -> bool:
    return word.key.endswith(PART) and word.text != "no feedback"


def _reached(runs: Sequence[Run]) -> str:
    """The average density over the seeds; empty if it is the requested one, or 100 %."""
    if runs[0].compressor == "none":
        return ""
    found = [value for run in runs if is_number(value := run.summary.get(REACHED)) and math.isfinite(value)]
    if len(found) < len(runs):
        return ""
    wanted = runs[0].config["compressor"].get("density")
    reached = statistics.fmean(found)
    is_as_asked = isinstance(wanted, (int, float)) and abs(reached - wanted) <= NEAR * wanted
    if f"{100 * reached:.3g}" == "100" or (is_as_asked and runs[0].compressor != "hard_threshold"):
        return ""
    return f"{100 * reached:.3g} % sent"


def _with_unique_names(said: dict[str, str]) -> dict[str, str]:
    times = Counter(said.values())
    return {key: name if times[name] == 1 else key for key, name in said.items()}


def _per_cent(value: float) -> str:
    return f"{Decimal(repr(value)).scaleb(2).normalize():f} %"
