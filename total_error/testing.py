"""The contract of every method, as tests for pytest; it needs the extra ``[lab]`` and pytest."""

from compressors.testing.cases import Case, cases_in, cases_of
from compressors.testing.contract import Contract

__all__ = ["Case", "Contract", "cases_in", "cases_of"]
