"""Example compressors: the contract of all compressors."""

from contract.contract import Contract, cases_of
from examples.methods.ef_sign import EFSign
from examples.methods.low_rank import LowRank


class TestExamples(Contract):
    cases = cases_of(EFSign, LowRank)
