"""The charts of a Weights & Biases dashboard, as templates/charts.yaml.j2 describes them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from results.compare.paper import ERROR_CURVES, TRAININGS
from trainers.network_model.break_even import NAME as BREAK_EVEN

QUALITIES = {
    "test/accuracy": "test accuracy",
    "test/perplexity": "test perplexity",
    "test/hit_rate_at_10": "test hit rate at 10",
    "validation/accuracy": "validation accuracy",
    "validation/perplexity": "validation perplexity",
    "convex/suboptimality": "suboptimality f(x) - f*",
}
TEMPLATE = Path(__file__).parent / "templates/charts.yaml.j2"


def sections(qualities: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The charts by heading, each with its kind, title and fields."""
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        qualities=[(name, QUALITIES[name], str(name.startswith("convex/")).lower()) for name in qualities],
        BREAK_EVEN=BREAK_EVEN,
        paper_thresholds=paper_thresholds(),
        paper_lines=paper_lines(),
        paper_errors=paper_errors(),
    )
    found: dict[str, list[dict[str, Any]]] = yaml.safe_load(text)
    return found


def paper_lines() -> Iterator[tuple[str, str, str, str, list[float]]]:
    """Experiment, quantity, metric, places and values of each of the paper's curves."""
    values = [(curve.experiment, value) for curve in ERROR_CURVES for value in curve.values]
    for name, metric in dict.fromkeys((name, value.metric) for name, value in values):
        own = [value for of, value in values if (of, value.metric) == (name, metric)]
        places = " and ".join(dict.fromkeys(value.at for value in own))
        yield name, own[0].quantity, metric, places, sorted({value.published for value in own})


def paper_thresholds() -> str:
    """The paper's lambda and k of each network, as Markdown."""
    rows = [
        f"| {one.title} | {one.num_parameters:,} | {one.expected_elements:,} | {one.threshold:.4g} |"
        for one in TRAININGS
    ]
    head = ["The paper's networks: lambda = 1 / (2 sqrt(k)).", "", "| network | D | k | lambda |"]
    return "\n".join([*head, "|---|---:|---:|---:|", *rows])


def paper_errors() -> str:
    """The paper's values of the convex experiments, as Markdown."""
    rows = [
        f"| {curve.experiment} | {curve.compressor} | {value.quantity} | {value.at} "
        f"| {value.published:.4g} | {value.source} |"
        for curve in ERROR_CURVES
        for value in curve.values
    ]
    head = "| experiment | method | quantity | at | published | source |"
    return "\n".join(["Values of the paper.", "", head, "|---|---|---|---|---:|---|", *rows])
