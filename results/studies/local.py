"""The rates that the study of local steps tried, and its methods as a task of the league's page."""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, median
from typing import Any

from results.compare.measures import LINK_BYTES, Measure
from results.predicted_steps import cost_of_run, local_of
from results.read.run import Run
from results.report.axes import rounded
from results.studies.kit import Seeds, first_of
from results.studies.league.explorer import command_of
from results.studies.league.scores import TARGET_AT

TASK, DENSE = "gpt_local", "every_step"
QUALITY = Measure.recorded("test/perplexity", "test perplexity per byte", digits=3)


def names(runs: Sequence[Run], further: Sequence[Run]) -> dict[str, Any]:
    """The names of the template; ``further`` are the runs of the rates."""

    def rates() -> dict[str, list[Run]]:
        """The runs by method, the best first, by the validation split."""
        ranked = sorted(further, key=lambda run: (_name_of(run), run.summary["validation/perplexity"]))
        return {name: list(own) for name, own in groupby(ranked, key=_name_of)}

    return {"rates": rates}


def data(runs: Sequence[Run], _: Sequence[Run] = ()) -> dict[str, Any]:
    """The methods on shuffled text as a task of ``results.studies.league.explorer``, by local steps.

    Raises ``ValueError`` without a run of every step.
    """
    alike = [run for run in runs if run.config["data"].get("partition") is None]
    found = {
        name: {run.seed: run for run in own} for name, own in groupby(sorted(alike, key=_name_of), _name_of)
    }
    if (dense := found.get(DENSE)) is None:
        raise ValueError("the data of this page need runs of local-every_step")
    workers, steps = first_of(dense).workers, first_of(dense).summary["step"]
    halfway = [_curve(run)[lambda curve: curve.index <= TARGET_AT * steps].iloc[-1] for run in dense.values()]
    target = fmean(map(float, halfway))
    one = {
        "description": "the smallest GPT, bytes of Python's reference, with and without local steps",
        "quality": QUALITY.label,
        "higher_is_better": False,
        "target": rounded(target),
        "workers": workers,
        "steps": steps,
        "compute_seconds": rounded(median(cost_of_run(run, workers)[1] for run in dense.values())),
        "settings": [_setting(name, own, target) for name, own in found.items()],
    }
    return {"tasks": {TASK: one}}


def _setting(name: str, own: Seeds, target: float) -> dict[str, Any]:
    run = first_of(own)
    in_a_step = _local_steps(run)
    costs = [cost_of_run(each, run.workers)[0] for each in own.values()]
    seconds, gathered, rounds = (median(column) / in_a_step for column in zip(*costs, strict=True))
    values = QUALITY.values(list(own.values()))
    reached = [_steps_to(target, each) for each in own.values()]
    outer = run.config["local"].get("outer")
    return {
        "method": "none" if name == DENSE else name,
        "setting": f"lr={run.config['optimizer']['lr']:.4g}"
        + (f" outer lr={outer['lr']:.4g}" if outer else ""),
        "budget": None,
        "quality": [rounded(value) for value in (fmean(values), min(values), max(values))],
        "spread": QUALITY.spread(list(own.values())),
        "sent_bytes": rounded(fmean(each.summary[LINK_BYTES] for each in own.values())),
        "compression_seconds": rounded(0.0 if name == DENSE else seconds),
        "rounds": rounds,
        "step_bytes": rounded(gathered * (run.workers - 1)),
        "steps_to_target": None if None in reached else median(filter(None, reached)),
        "command": command_of(own),
    }


def _name_of(run: Run) -> str:
    return str(run.config["name"]).removeprefix("local-")


def _local_steps(run: Run) -> int:
    """Local steps from one exchange to the next."""
    steps, fragments = local_of(run)
    return steps // fragments


def _curve(run: Run) -> Any:
    """Quality by local step."""
    curve = run.curve(QUALITY.name)
    return curve.set_axis(curve.index * _local_steps(run))


def _steps_to(target: float, run: Run) -> int | None:
    reached = _curve(run)[lambda curve: curve <= target]
    return int(reached.index[0]) if len(reached) else None
