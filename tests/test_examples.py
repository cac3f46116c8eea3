"""The examples: files of their own, at most 40 lines each, held to the contract of every compressor."""

from compressors.testing.contract import Contract, cases_of
from examples.methods.ef_sign import EFSign
from examples.methods.low_rank import LowRank


class TestExamples(Contract):
    cases = cases_of(EFSign, LowRank)
