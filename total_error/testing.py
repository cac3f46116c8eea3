"""The contract of every method, as tests for pytest; it needs the extra ``[lab]`` and pytest."""

from contract.cases import Case, cases_in, cases_of
from contract.contract import Contract

__all__ = ["Case", "Contract", "cases_in", "cases_of"]
