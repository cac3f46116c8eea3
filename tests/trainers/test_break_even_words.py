"""The break-even bandwidth in words."""

import pytest

from trainers.network_model.break_even import ANY_BANDWIDTH, in_words
from trainers.network_model.break_even import NAME as BREAK_EVEN
from trainers.run.report import print_summary


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0], "never"),
        ([ANY_BANDWIDTH], "on any network"),
        ([1.2345e9], "below 1.23 Gbit/s"),
        ([0.0, 3e9], "below 0 to 3 Gbit/s"),
        ([3e9, ANY_BANDWIDTH], "below 3 Gbit/s to any speed"),
    ],
)
def test_words(values: list[float], words: str) -> None:
    assert in_words(values) == words


def test_the_end_of_a_run_says_whether_it_pays(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary({BREAK_EVEN: 8.3e8, "step": 3})
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "faster than dense" in line]
    assert line.split("link")[1].strip() == "below 830 Mbit/s"
