"""Three key parameters: coordinates, scope and feedback."""

from results.studies.three_parameters.page import STUDY

__all__ = ["STUDY"]
