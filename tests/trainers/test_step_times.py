"""Predicted step times, compared with hand-computed ones and with measured steps over throttled links."""

import math
import re
from typing import Any

import pytest
from command_line import ROOT

from trainers.network_model.rates import bits_per_second
from trainers.network_model.step_times import Cost, Line, Network, judge, predict

DENSE = Cost("dense", 1e6, 0.0, Line(0.001), Line(0.0, 2.0))
SPARSE = Cost("top_k", 0.0, 1e4, Line(0.004, 0.001), Line(1.0))
SLOW = Network(bits_per_second=8e6, latency_seconds=0.001)


FAST = Network(8e9, 0.0, backend_bits_per_second=8e6)  # the backend is slower than the link


@pytest.mark.parametrize(
    ("cost", "compute", "network", "overlap", "communication", "compression"),
    [
        (DENSE, 0.1, SLOW, 0.0, 1.506, 0.001),  # 6 rounds of 1 ms; 1.5 MB at 1 MB/s
        (SPARSE, 0.1, SLOW, 0.0, 0.031, 0.007),  # 30 kB and a round; 4 ms, and 1 ms for each of 3 others
        (DENSE, 0.1, FAST, 0.0, 1.5, 0.001),
        (DENSE, 1.0, SLOW, 0.5, 1.006, 0.001),  # overlap hides messages and nothing else
        (SPARSE, 1.0, SLOW, 0.5, 0.0, 0.007),
        (DENSE, 0.1, SLOW._replace(backend_seconds=0.02), 0.0, 1.526, 0.001),  # one all-reduce
        (SPARSE._replace(rounds=Line(2.0, 4.0)), 0.1, Network(8e6, backend_seconds=0.02), 0.0, 0.11, 0.007),
    ],
)
def test_the_step_of_four_workers(
    cost: Cost, compute: float, network: Network, overlap: float, communication: float, compression: float
) -> None:
    for count in (1, 8):
        found = predict(cost._replace(local_steps=count), compute, 4, network, overlap=overlap)
        assert found.communication == pytest.approx(communication / count)
        assert found.compression == pytest.approx(compression / count)
        assert found.step == pytest.approx(compute + (communication + compression) / count)


def test_bytes_that_a_backend_adds_slowly() -> None:
    """fp16 has half the bytes, which gain time on a slow link alone."""
    half = Cost("fp16", 0.5e6, 0.0, Line(0.001), Line(0.0, 2.0), backend_weight=2.0)
    assert predict(half, 0.1, 4, FAST).step == pytest.approx(predict(DENSE, 0.1, 4, FAST).step)
    slow = FAST._replace(bits_per_second=1e6)
    own, dense = (predict(cost, 0.1, 4, slow).communication for cost in (half, DENSE))
    assert own == pytest.approx(dense / 2)


MEASURED = {  # Mbit/s: % of the time in which four workers compute, at H = 1, 8, 32 and 128
    # The README of https://github.com/Adnan082/diloco-measured: DiLoCo, 30.8 M parameters, four L40S, medians
    50: (0.07, 0.55, 2.41, 11.55),
    200: (0.32, 2.48, 10.01, 36.09),
    1000: (1.74, 12.35, 36.01, 71.52),
    5000: (7.76, 40.24, 68.10, 87.00),
}


def test_shares_of_compute_measured_elsewhere() -> None:
    """One ratio of compute to bytes, from 1 Gbit/s and H = 8, predicts the 15 other cells."""

    def share(mbit: float, count: int, compute: float) -> float:
        cost = Cost("", 1.0, 0.0, Line(0.0), Line(0.0), local_steps=count)
        found = predict(cost, compute, 4, Network(1e6 * mbit))
        return 100 * found.compute / found.step

    exchange = predict(Cost("", 1.0, 0.0, Line(0.0), Line(0.0)), 0.0, 4, Network(1e9)).step
    known = MEASURED[1000][1] / 100
    compute = exchange / 8 * known / (1 - known)
    page = (ROOT / "docs/guides/your_network.md").read_text()
    for mbit, row in MEASURED.items():
        cells = []
        for count, measured in zip((1, 8, 32, 128), row, strict=True):
            predicted = share(mbit, count, compute)
            assert predicted == pytest.approx(measured, rel=0.28)
            assert predicted == pytest.approx(measured, rel=0.15) or mbit == 50
            assert predicted == pytest.approx(measured, abs=6)
            cells.append(f"{measured:.2f} / {predicted:.2f}")
        assert f"| {mbit:,} Mbit/s | {' | '.join(cells)} |" in page


def test_the_best_method_and_its_margins() -> None:
    slow = judge([predict(cost, 0.1, 4, SLOW) for cost in (DENSE, SPARSE)])
    assert slow.best.name == "top_k" and slow.over_dense == pytest.approx(1.607 / 0.138)
    assert str(slow) == "best: top_k, 11.64 times as fast as dense; 11.64 times as fast as the next, dense"
    fast = judge([predict(cost, 0.1, 4, Network(math.inf)) for cost in (DENSE, SPARSE)])
    assert str(fast) == "best: dense; top_k takes as long within 10%"
    middle = Network(1.6e8, 0.0)  # dense: 100 + 60 ms
    near = judge([predict(cost, 1.0, 4, middle) for cost in (DENSE, SPARSE)])
    assert str(near).startswith("no method is 10% faster than dense: the best, top_k, is 1.0")
    with pytest.raises(ValueError, match="needs two methods, got 1"):
        judge([predict(DENSE, 0.1, 4, SLOW)])


def test_rates_are_read() -> None:
    assert bits_per_second("2.5gbit") == 2.5e9 and bits_per_second("unlimited") == math.inf
    for text in ("fast", "1", "nangbit", "infgbit", "gbit", "1 gbps"):
        with pytest.raises(ValueError, match=f"a rate must be a number and .* got {text}"):
            bits_per_second(text)
    number: Any = 10
    with pytest.raises(ValueError, match=r"a rate must be a number and .* got 10$"):
        bits_per_second(number)
    for text in ("0gbit", "-1gbit"):
        with pytest.raises(ValueError, match=f"^a rate must be above 0, got {text}$"):
            bits_per_second(text)


HANDED = {  # bytes of a worker in benchmarks/results/network.md: all-reduced, gathered
    "DDP": (44_691_240, 0),
    "DDP, fp16_compress_hook": (22_345_620, 0),
    "DDP, powerSGD_hook, rank 2": (333_696, 0),
    "top_k": (0, 89_544),
    "hard_threshold": (0, 138_724),
}
GLOO = 5e9  # bits per second between two gloo processes on the machine of the measurements


def measured_steps() -> dict[tuple[str, str], list[float]]:
    """Milliseconds of a step, compute, compression, waiting and update of two hosts, by rate and method."""
    found, rate = {}, None
    for line in (ROOT / "benchmarks/results/network.md").read_text().splitlines():
        if line.startswith("#"):
            title = re.fullmatch(r"## 2 hosts, (\w+)", line)
            rate = title and title[1]
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if rate and len(cells) == 8 and cells[0] in HANDED:
            found[rate, cells[0]] = [float(cell.replace(",", "")) for cell in cells[1:6]]
    return found


def test_predictions_are_within_an_eighth_of_measured_steps() -> None:
    """Compute and compression measured at 1 Gbit/s predict the steps at 100 Mbit/s, 1 and 10 Gbit/s."""
    measured = measured_steps()
    assert len(measured) == 3 * len(HANDED)
    for (rate, method), (step, *_) in measured.items():
        _, compute, compression, _, update = measured["1gbit", method]
        reduced, gathered = HANDED[method]
        rounds = Line(1.0) if gathered else Line(0.0, 2.0)
        cost = Cost(method, reduced, gathered, Line(compression / 1e3), rounds)
        network = Network(bits_per_second(rate), 5e-5, GLOO)
        predicted = predict(cost, (compute + update) / 1e3, 2, network).step
        assert predicted == pytest.approx(step / 1e3, rel=0.125), (rate, method)
