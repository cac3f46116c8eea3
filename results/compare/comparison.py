"""Comparison of runs of one setting: a row per method, with its difference from a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass

from results.compare.measures import (
    Measure,
    break_even,
    costs,
    num_parameters,
    qualities,
    unequal_bytes,
    unequal_training,
)
from results.compare.paper import OFFSETS, PROBLEMS
from results.compare.statistics import (
    FEWEST_SEEDS,
    Difference,
    Finding,
    findings,
    paired_difference,
    standard_deviation,
)
from results.compare.verdicts import NOT_COMPARABLE, Verdict, verdict
from results.read.matching import by_method, by_setting, warnings
from results.read.naming import asked as what_was_asked
from results.read.naming import name_of, names
from results.read.run import Run
from results.read.settings import differing, is_told, sortable
from trainers.identity.identity import Value, text

MOST_NAMES = 3  # names in the title of a group whose runs have several


@dataclass(frozen=True)
class ComparedMethod:
    """One method's runs and numbers."""

    method: str  # the method's label in its identity
    name: str  # the name in tables
    asked: str  # the requested lambda or density, or a dash
    runs: tuple[Run, ...]  # seeds ascending
    common: tuple[int, ...]  # the seeds of ``finding``
    finding: (
        Finding | None
    )  # on method minus baseline; None for the baseline, and without one or a common seed
    verdict: Verdict

    def difference(self, measure: Measure) -> str:
        """Method minus baseline of ``measure``, with its interval and the verdict if there is one."""
        if self.finding is None:
            return "no seed with both numbers"
        shown = measure.difference(*self.finding.difference)
        return shown if self.finding.p is None else f"{shown}; {self.finding.word()}"

    @property
    def code(self) -> str:
        """The versions of the code that ran."""
        return ", ".join(sorted({run.code for run in self.runs}))


@dataclass(frozen=True)
class Section:
    """One subject in one setting."""

    title: str  # plain text, like facts and notes; every format escapes them
    facts: tuple[str, ...]
    qualities: tuple[Measure, ...]  # differences are those of the first
    costs: tuple[Measure, ...]
    rows: tuple[ComparedMethod, ...]
    baseline: str | None  # the name of a row
    notes: tuple[str, ...]

    @property
    def has_asked(self) -> bool:
        return any(row.asked != "-" for row in self.rows)

    @property
    def has_comparable(self) -> bool:
        """Whether a row has a comparable number in the paper."""
        return any(row.verdict.word != NOT_COMPARABLE for row in self.rows)

    @property
    def has_several_codes(self) -> bool:
        return len({run.code for row in self.rows for run in row.runs}) > 1


def compare(runs: Sequence[Run], baseline: str | None = None) -> list[Section]:
    """A section for every setting, titled by subject and by the settings that differ within the subject.

    ``baseline`` names a method, with or without its settings. By default it is none, else top_k, if exactly
    one row has that compressor. Raises ``ValueError`` if no run has the given baseline.
    """
    groups = by_setting(runs)
    methods = [by_method(group) for group in groups]
    known = {words for of in methods for name in names(of).items() for words in name}
    known |= {runs[0].compressor for of in methods for runs in of.values()}
    if baseline is not None and baseline not in known:
        there = ", ".join(map(repr, sorted({name for of in methods for name in names(of).values()})))
        raise ValueError(f"no run of the baseline {baseline!r}; there are {there}")
    subjects: dict[str, list[list[Run]]] = {}
    for group in groups:
        subjects.setdefault(_subject(group), []).append(group)
    sections = []
    for subject, groups in sorted(subjects.items()):
        own = differing([group[0].setting for group in groups])
        order = sorted(range(len(groups)), key=lambda i: [sortable(value) for value in own[i].values()])
        sections += [_section(_title(subject, own[i]), groups[i], baseline) for i in order]
    return sections


def _section(title: str, group: list[Run], asked: str | None) -> Section:
    of_group = qualities(group)
    methods = by_method(group)
    called = names(methods)
    baseline, note = _baseline(methods, called, asked)
    if not of_group:
        baseline, note = None, "no run has a quality that tables know"
    elif len(methods) == 1:
        baseline, note = None, ""
    notes = [*warnings(group), *([note] if note else [])]
    compared = {} if baseline is None else _differences(methods, baseline, of_group[0])
    judged = dict(zip(compared, findings([(each, None) for each, _ in compared.values()]), strict=True))
    rows = [
        ComparedMethod(
            method,
            called[method],
            what_was_asked(seeds[0]),
            tuple(seeds),
            compared[method][1] if method in compared else (),
            judged.get(method),
            verdict(seeds),
        )
        for method, seeds in methods.items()
    ]
    of_name = {called[method]: seeds for method, seeds in methods.items()}
    notes += filter(None, [unequal_bytes(of_name), unequal_training(of_name)])
    notes += _without_interval(of_name, [*of_group, *costs(group)])
    notes += [
        f"{name} has no {measure.label} with {_counted_seeds(seeds)}, where it was not finite or not "
        "measured: its mean is over the others, and there is no verdict"
        for measure in of_group[:1]
        for name, own in of_name.items()
        if (seeds := _seeds_without(own, measure))
    ]
    if together := max((each.together for each in judged.values()), default=0):
        notes.append(
            "differences have single intervals of 95 %, paired by seed; verdicts on them follow the p-values "
            f"after adjustment among {together} (Holm, docs/statistics.md)"
        )
    if break_even(group):
        notes.append(
            "faster than dense, link: the link speed below which a step is faster than a dense one, by the "
            "time that compression took on the machine of the runs; the least and the largest of the seeds"
        )
    notes.append(
        "MB: 10^6 bytes, mean over workers, if each had its own machine; compression ratio: bytes that "
        "would leave a worker without compression, over the bytes that leave it"
    )
    return Section(
        title,
        tuple(_facts([run for seeds in methods.values() for run in seeds])),
        tuple(of_group),
        (*costs(group), *break_even(group)),
        tuple(rows),
        None if baseline is None else called[baseline],
        tuple(notes),
    )


def _baseline(
    methods: dict[str, list[Run]], called: dict[str, str], asked: str | None
) -> tuple[str | None, str]:
    """The baseline method, and a note if there is none."""
    for name in (asked,) if asked else ("none", "top_k"):
        found = [
            method for method, runs in methods.items() if name in (method, called[method], runs[0].compressor)
        ]
        if len(found) == 1:
            return found[0], ""
        if found:
            return None, f"{len(found)} rows are {name}: --baseline chooses one to give differences from"
    return None, f"no differences: there is no run of {asked or 'none nor of top_k'}"


def _without_interval(methods: dict[str, list[Run]], measures: Sequence[Measure]) -> list[str]:
    """Footnotes on numbers without a deviation."""
    few = [method for method, runs in methods.items() if len(runs) < FEWEST_SEEDS]
    alike = [method for method, runs in methods.items() if len(runs) > 1 and _are_alike(runs, measures)]
    others = [runs for method, runs in methods.items() if method not in (*few, *alike)]
    notes = []
    if few:
        notes.append(f"no ± and no interval, of fewer than three seeds: {'; '.join(few)}")
    if alike:
        notes.append(f"no ± and no interval, the seeds' runs are equal: {'; '.join(alike)}")
    values = [found for runs in others for measure in measures if len(found := measure.values(runs)) > 1]
    if any(standard_deviation(found) is None for found in values):
        notes.append("other numbers without ±: the same in every seed")
    return notes


def _are_alike(runs: list[Run], measures: Sequence[Measure]) -> bool:
    """Whether the runs of all seeds have equal numbers."""
    losses = {run.summary.get("train/loss") for run in runs}
    return len(losses) == 1 and all(len(set(measure.values(runs))) < 2 for measure in measures)


def _differences(
    methods: dict[str, list[Run]], baseline: str, measure: Measure
) -> dict[str, tuple[Difference, tuple[int, ...]]]:
    """By method, its difference from the baseline and the common seeds, if there is one.

    There is no interval, and so no verdict, if some run of either lacks the number, as one that diverged.
    """
    values = {
        method: {run.seed: value for run in runs if (value := measure.value(run)) is not None}
        for method, runs in methods.items()
    }
    theirs = values.pop(baseline)
    found = {}
    for method, ours in values.items():
        if seeds := tuple(seed for seed in ours if seed in theirs):
            pairs = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
            difference = paired_difference(*pairs)
            if _seeds_without(methods[method], measure) or _seeds_without(methods[baseline], measure):
                difference = difference._replace(low=None, high=None)
            found[method] = (difference, seeds)
    return found


def _seeds_without(runs: Sequence[Run], measure: Measure) -> list[int]:
    """The seeds whose runs lack a number that others have: it was not finite, or not measured."""
    without = [run.seed for run in runs if measure.value(run) is None]
    return without if len(without) < len(runs) else []


def _counted_seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _subject(group: list[Run]) -> str:
    """The subject of the runs, or all names if runs with equal settings have different names."""
    names = sorted({run.subject for run in group})
    more = len(names) - MOST_NAMES
    return " and ".join([*names[:MOST_NAMES], *([f"{more} more"] if more > 0 else [])])


def _title(subject: str, own: dict[str, Value]) -> str:
    words = [f"{key} {text(value)}" for key, value in own.items() if is_told(key, value)]
    return ", ".join([subject, *words])


def _facts(runs: Sequence[Run]) -> list[str]:
    """The size of the runs, the facts of their data, and the first quality of the first run.

    Runs that are compared across a setting may have several sizes; facts in which their data differ are left
    out.
    """
    run = runs[0]
    inside = f" in {run.config['nodes']} nodes" if run.config.get("nodes") else ""
    facts = [] if "workers" in run.across else [f"{run.config.get('workers')} workers{inside}"]
    if elements := {number for each in runs if (number := num_parameters(each))}:
        facts.append(f"{_range(elements)} parameters")
    if steps := {each.summary["step"] for each in runs if "step" in each.summary}:
        facts.append(f"{_range(steps)} steps")
    of_runs = [each.summary.get("data", {}) for each in runs]
    data = {name: value for name, value in of_runs[0].items() if all(of.get(name) == value for of in of_runs)}
    facts += [
        f"{name} {_plain(value)}" for name, value in data.items() if not isinstance(value, (dict, list))
    ]
    lines = [f"{', '.join(facts)}."]
    first = run.curve("validation/perplexity")
    if not first.empty:
        lines.append(
            f"The first validation perplexity of {name_of(run)}, seed {run.seed}, is {first.iloc[0]:.1f}, "
            f"after {first.index[0]} steps."
        )
    name = str(data.get("name"))
    if name in PROBLEMS and "problem" in run.summary and run.config["model"].get("offset") == OFFSETS[name]:
        pairs = zip(
            ("L", "f(x0)", "f*"), ("smoothness", "start_value", "optimum_value"), PROBLEMS[name], strict=True
        )
        said = (
            f"{label} {run.summary['problem'][key]:.11g} (paper {printed:.11g})"
            for label, key, printed in pairs
        )
        lines.append(f"The problem: {', '.join(said)}.")
    return lines


def _range(numbers: set[int]) -> str:
    """One number, or the smallest and the largest of several."""
    return " to ".join(f"{number:,}" for number in sorted({min(numbers), max(numbers)}))


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
