"""The method of ``compressor=cocktail``: its parts and bytes; test_definitions.py has such chains."""

import torch
from methods import named, reduce_once

from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.qsgd import QSGD
from compressors.random_k import RandomK
from compressors.top_k import TopK

D, N, BUCKET = 20_000, 4, 128


def test_a_tenth_is_drawn_for_all_and_each_worker_sends_a_fifth_of_it_in_4_bits() -> None:
    method = named("cocktail", {}).method()
    second = Chain(first=TopK(density=0.2), second=QSGD(bits=4, bucket_size=BUCKET))
    assert method == Chain(first=RandomK(density=0.1), second=second)
    p = torch.randn(N, D, generator=torch.Generator().manual_seed(0))
    reduced, _, communicator = reduce_once(build_reducer(method, D), p)
    sent = D // 50  # for each a 4-byte index and a level of half a byte; for each bucket 4 bytes
    assert reduced.compressed["a"].counts.tolist() == [sent] * N
    assert communicator.take_charges().sum(1).tolist() == [4 * sent + sent // 2 + 4 * -(-sent // BUCKET)] * N
