"""Hard threshold against Top-k at equal bytes."""

from results.studies.lambda_vs_k.page import STUDY

__all__ = ["STUDY"]
