"""The rates that the study of local steps tried, method by method."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from results.read.run import Run


def names(runs: Sequence[Run], further: Sequence[Run]) -> dict[str, Any]:
    """The names of the template; ``further`` are the runs of the rates."""

    def name_of(run: Run) -> str:
        return str(run.config["name"]).removeprefix("local-")

    def rates() -> dict[str, list[Run]]:
        """The runs by method, the best first, by the validation split."""
        ranked = sorted(further, key=lambda run: (name_of(run), run.summary["validation/perplexity"]))
        return {name: list(own) for name, own in groupby(ranked, key=name_of)}

    return {"rates": rates}
