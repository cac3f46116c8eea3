"""Properties of single methods: the threshold rule, scopes, draws, composition, refusals."""

import math

import pytest
import torch
from methods import Case, cases, is_codec, reduce_once, segment

from compressors.api import Step, inputs_of
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.clt_k import CLTK
from compressors.core.compress import Compress
from compressors.core.randomness import derive_seed, distinct_coordinates
from compressors.core.transports import AllGather, AllReduce
from compressors.hard_threshold import HardThreshold
from compressors.qsgd import QSGD
from compressors.random_block import RandomBlock
from compressors.random_k import RandomK
from compressors.reused_threshold import ReusedThreshold
from compressors.top_k import TopK
from contract.contract import Contract
from trainers.comm.communicator import Communicator


@pytest.mark.parametrize(
    ("parameters", "printed"),
    [  # the released code's values for k = 0.1 % of D, four digits
        (11_173_962, 4.730e-3),
        (6_166_250, 6.367e-3),
        (11_220_132, 4.720e-3),
        (6_258_500, 6.320e-3),
        (28_949_319, 2.938e-3),
        (7_000_000_000, 1.8898e-4),  # computed; more than an int32 holds
    ],
)
def test_threshold_rule_of_the_paper(parameters: int, printed: float) -> None:
    found = HardThreshold(density=0.001).for_model(parameters).threshold
    assert found == 1 / (2 * math.sqrt(0.001 * parameters))
    assert found == pytest.approx(printed, rel=5e-4)


def test_a_threshold_that_is_set_stays() -> None:
    assert HardThreshold(threshold=0.5, density=0.1).for_model(100).threshold == 0.5
    with pytest.raises(ValueError, match="for_model"):
        HardThreshold(density=0.1).encode(torch.ones(3), Step(0, 0))


def kept_by(method: object, sizes: list[int]) -> torch.Tensor:
    """Mask of the elements of one worker's four layers that are sent, in segments of ``sizes`` elements."""
    rows = torch.randn(1, 244, generator=torch.Generator().manual_seed(0))
    rows[:, :43] *= 10  # with layers of different scale Top-k depends on the scope
    segments = [segment(part, str(i)) for i, part in enumerate(rows.split(sizes, 1))]
    reducer = build_reducer(method, 244)
    reducer.reduce(inputs_of(segments), reducer.init(segments), Step(0, 0), Communicator(1))
    return rows[0] == 0


def test_scopes_change_what_top_k_sends_and_not_what_a_threshold_sends() -> None:
    for method, same in ((HardThreshold(threshold=1.5), True), (TopK(density=0.1), False)):
        assert torch.equal(kept_by(method, [3, 40, 1, 200]), kept_by(method, [244])) == same


def test_distinct_coordinates_are_uniform() -> None:
    """Every coordinate is drawn equally often, for small shares (drawn with repetition) and large ones."""
    for size, count in ((20, 3), (20, 11)):
        hits = torch.zeros(size)
        for seed in range(4000):
            hits[distinct_coordinates(derive_seed(seed), size, count)] += 1
        expected = 4000 * count / size
        sigma = math.sqrt(4000 * count / size * (1 - count / size))
        assert (hits - expected).abs().max() < 4.5 * sigma


def test_random_block_starts_everywhere() -> None:
    codec = RandomBlock(density=0.2)
    starts = {int(codec.encode(torch.ones(10), Step(0, step)).start) for step in range(300)}
    assert starts == set(range(10))


def test_draws_differ_between_segments_and_seeds() -> None:
    codec = RandomK(density=0.1)
    contexts = (Step(0, 0, segment="a"), Step(0, 0, segment="b"), Step(1, 0, segment="a"))
    drawn = {tuple(codec.encode(torch.ones(200), c).indices.tolist()) for c in contexts}
    assert len(drawn) == 3


CHAINS = {
    "block-top_k": Chain(first=RandomBlock(density=0.5), second=TopK(density=0.5)),
    "own_random_k-threshold": Chain(
        first=RandomK(density=0.5, shared_coordinates=False), second=HardThreshold(threshold=0.5)
    ),
    "linear": Chain(first=RandomBlock(density=0.5), second=RandomK(density=0.5)),
    "threshold-qsgd": Chain(first=HardThreshold(threshold=0.5), second=QSGD(bits=2, bucket_size=16)),
    "top_k of random_k, then qsgd": Chain(
        first=Chain(first=RandomK(density=0.5), second=TopK(density=0.5)), second=QSGD(bucket_size=16)
    ),
    "random_k-top_k-qsgd": Chain(
        first=RandomK(density=0.5), second=Chain(first=TopK(density=0.5), second=QSGD(norm="max"))
    ),
}


class TestChains(Contract):
    cases = tuple(Case(Chain, {"first": c.first, "second": c.second}) for c in CHAINS.values())

    @pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
    def test_processes_change_nothing(self, processes: int) -> None:
        super().test_processes_change_nothing(processes)


def test_chains_of_what_looks_at_all_workers_first_are_refused() -> None:
    for codec in (CLTK(density=0.1), ReusedThreshold(density=0.1)):
        rule = f"selection needs no state and no exchange between workers, got '{type(codec).__name__}'"
        with pytest.raises(ValueError, match=rule):
            Chain(first=codec, second=QSGD())


def test_the_threshold_of_a_chain_knows_the_model() -> None:
    chain = Chain(first=TopK(density=0.5), second=HardThreshold(density=0.1)).for_model(1000)
    assert chain.second.threshold == pytest.approx(1 / 20)


def test_zeros_are_not_sent_to_reach_a_count() -> None:
    """With fewer than k nonzero entries only these are sent, also in steps that reuse the threshold."""
    codec, g = ReusedThreshold(density=0.1), torch.zeros(2, 100)
    g[:, :3] = 1.0
    reducer, state = build_reducer(codec, 100), None
    for step in range(3):
        reduced, state, _ = reduce_once(reducer, g, state, step)
        assert reduced.compressed["a"].counts.tolist() == [3, 3]


def test_linear_codecs_are_averaged_and_others_gathered() -> None:
    for case in cases():
        method = case.method()
        if is_codec(method):
            expected = AllReduce if method.traits.linear else AllGather
            assert isinstance(build_reducer(method, 10).innermost.transport, expected)
    with pytest.raises(ValueError, match="linear"):
        Compress(TopK(density=0.1), AllReduce())
