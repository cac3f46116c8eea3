"""Every method on three small tasks, each with its own learning rate."""

from results.studies.methods.page import STUDY

__all__ = ["STUDY"]
