"""The study of two language models beyond the engine: the runs that tried learning rates."""

from collections.abc import Sequence
from typing import Any

from results.read.run import Run


def names(runs: Sequence[Run], tried: Sequence[Run]) -> dict[str, Any]:
    return {"tried": sorted(tried, key=lambda run: (run.config["optimizer"]["lr"], run.path))}
