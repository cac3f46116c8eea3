"""The contract for every compressor in the folder conf/compressor."""

import pytest
from methods import cases

from contract.contract import Contract

FIRST = tuple({case.source: case for case in reversed(cases())}.values())[::-1]  # one case of each method


class TestCompressors(Contract):
    cases = FIRST

    @pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
    def test_processes_change_nothing(self, processes: int) -> None:
        super().test_processes_change_nothing(processes)


@pytest.mark.slow
class TestFurtherExamples(Contract):
    cases = tuple(case for case in cases() if case not in FIRST)
