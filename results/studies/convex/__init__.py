"""The paper's convex experiments."""

from results.studies.convex.page import STUDY

__all__ = ["STUDY"]
