"""Every method on three small tasks, each at a learning rate of its own."""

from results.studies.methods.page import STUDY

__all__ = ["STUDY"]
