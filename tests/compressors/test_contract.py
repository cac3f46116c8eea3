"""The contract for every compressor in conf/compressor, found by looking into that folder."""

from methods import cases

from compressors.testing.contract import Contract


class TestCompressors(Contract):
    cases = cases()
