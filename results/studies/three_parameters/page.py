"""The study of three key parameters: effects of scheme, coordinates, scope and feedback.

Foroutan Eghlidi and Jaggi, 2020, https://arxiv.org/abs/2009.09271. The same runs give the same bytes.
"""

from collections.abc import Sequence
from functools import partial

from results.compare.measures import Measure, num_parameters
from results.escaping import in_markdown
from results.figures.groups import file_stem
from results.figures.saving import Figures
from results.read.run import Run
from results.studies.kit import Study, notes, table
from results.studies.three_parameters.combinations import SCHEMES, Combination, Network, networks
from results.studies.three_parameters.effects import CHANGES, Change, effect, ratio
from results.studies.three_parameters.figure import draw

INTRODUCTION = """# Three key parameters

Written by `python -m results study three_parameters` from the runs of `make three_parameters`;
[docs/papers/three_parameters.md](../../../docs/papers/three_parameters.md) has the verdict on the paper's
claims. Quality is that of the last weights, mean ± standard deviation over the listed seeds. Differences are
paired over seeds, with Student's 95 % interval in brackets. Bytes are those that would leave a worker over
the whole training if each worker had its own machine, with indices. Own coordinates: every worker has its
own, as always with Top-k. Time is `time/reduce_seconds`: compression and communication of all workers
together, median over a run's steps. The runs have one process, so this time contains no network transfer;
only the bytes show its cost. Without feedback, entries that are not sent are lost, and the sent ones are not
scaled up. For a language model the loss is used, the logarithm of its perplexity, because one diverged run
would dominate a mean of perplexities.
"""


def page(runs: Sequence[Run]) -> str:
    """Markdown: per network differences from plain SGD, effects, and all combinations; then notes."""
    parts = [INTRODUCTION]
    for network in networks(runs):
        parts += [_facts(network), _distances(network), _changes(network), _every_combination(network)]
    return "\n".join([*parts, notes(runs)])


def _facts(network: Network) -> str:
    run = next(iter(network.plain.values()))
    facts = [f"{run.config['workers']} workers of {run.config['trainer']['batch_size']} samples"]
    if elements := num_parameters(run):
        facts.append(f"{elements:,} parameters")
    facts.append(f"{run.summary['step']:,} steps")
    plain = list(network.plain.values())
    said = (
        f"Plain SGD (seeds {', '.join(map(str, network.plain))}): {network.quality.label} "
        f"{network.quality.spread(plain)}, {network.megabytes.spread(plain)} MB that left a worker, "
        f"{network.reduce.spread(plain)} ms of compression and communication a step."
    )
    return f"## {in_markdown(network.subject)}\n\n{in_markdown(', '.join(facts))}. {said}\n"


def _distances(network: Network) -> str:
    """A table of quality minus plain SGD's, with feedback."""
    head = ["scheme", "coordinates", "scope", *(f"density {100 * d:g} %" for d in network.densities)]
    first = [
        combination._replace(density=0.0)
        for combination in network.combinations
        if combination.feedback == "on"
    ]
    rows = []
    for kind in dict.fromkeys(first):
        combinations = [kind._replace(density=density) for density in network.densities]
        words = [SCHEMES[kind.scheme], kind.coordinates, kind.scope]
        rows.append([*words, *(_difference(network, combination) for combination in combinations)])
    title = f"### Differences from plain SGD, with feedback: {network.quality.label}, minus plain SGD's"
    return f"{title}\n\n{table(head, rows, words=3)}"


def _changes(network: Network) -> str:
    """A table of mean effects on quality, and of ratios of error, bytes and time."""
    head = ["change", "feedback", *(f"at {100 * density:g} %" for density in network.densities)]
    head += ["total error, times", "bytes, times", "time, times"]
    rows = []
    for change in CHANGES:
        effects = [_effect(network, change, density) for density in network.densities]
        if set(effects) == {"-"}:
            continue
        costs = [network.total_error, network.megabytes, network.reduce]
        ratios = [_times(ratio(network, change, measure)) for measure in costs]
        rows.append([change.label, change.feedback or "both", *effects, *ratios])
    title = f"### What each parameter changes: {network.quality.label}, with the change minus without"
    words = (
        "Means over all pairs of cells that differ only in this parameter. Total error, bytes and time are "
        "ratios, with the change over without it (geometric mean over all densities)."
    )
    return f"{title}\n\n{words}\n\n{table(head, rows, words=2)}"


def _every_combination(network: Network) -> str:
    measures: list[Measure] = [network.quality, network.total_error, network.megabytes, network.reduce]
    head = ["scheme", "coordinates", "scope", "feedback", "density, %", "seeds", network.quality.label]
    head += ["minus plain SGD's", *(measure.label for measure in measures[1:])]
    rows = []
    for combination, of_seed in network.combinations.items():
        found = list(of_seed.values())
        first, *others = [measure.spread(found) for measure in measures]
        rows.append(
            [
                SCHEMES[combination.scheme],
                combination.coordinates,
                combination.scope,
                combination.feedback,
                f"{100 * combination.density:g}",
                ", ".join(map(str, of_seed)),
                first,
                _difference(network, combination),
                *others,
            ]
        )
    return f"### Every cell\n\n{table(head, rows, words=4)}"


def _difference(network: Network, combination: Combination) -> str:
    found = network.difference(combination) if combination in network.combinations else None
    return network.quality.difference(*found) if found else "-"


def _effect(network: Network, change: Change, density: float) -> str:
    found = effect(network, change, density)
    return network.quality.difference(*found.difference) if found else "-"


def _times(found: float | None) -> str:
    return "-" if found is None else f"{found:.2f}"


def figures(runs: Sequence[Run]) -> Figures:
    """One figure for each network."""
    for network in networks(runs):
        yield file_stem(network.subject), partial(draw, network)


STUDY = Study(
    name="three_parameters",
    question="What do feedback, shared coordinates and scope change?",
    page=page,
    figures=figures,
    handwritten_pages=("docs/papers/three_parameters.md",),
)
