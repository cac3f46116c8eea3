"""Comparison of reductions in several processes with those in one process."""

import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from compressors.api import Segment, Step, inputs_of
from compressors.feedback import ErrorFeedback
from contract.cases import Case, reducer_of, weights_of
from trainers.checkpoint.tree import walk
from trainers.comm.communicator import Communicator

N, STEPS = 4, 3
SHAPES = {"a": ((20, 10), (50,)), "b": ((7,),), "c": ((1,),)}  # of the layers of each segment


def compare_layouts(cases: list[Case], processes: int) -> None:
    """Raise unless ``N`` workers give the same results in ``processes`` processes as in one, in all cases."""
    multiprocessing.set_forkserver_preload(["torch", "torch.distributed", __name__])
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_child, (processes, folder, cases), nprocs=processes, start_method="forkserver")


def _child(process: int, processes: int, folder: str, cases: list[Case]) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    meeting = Path(folder) / "meeting"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=process, world_size=processes)
    try:
        for case in cases:
            own = Communicator(N, rank=process, world_size=processes, reduction="worker_order")
            found = _reductions(case, own)  # first: no entry of another process may be known here
            _require_equal(str(case), _reductions(case, Communicator(N)), found, own.local_workers)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _reductions(case: Case, communicator: Communicator) -> dict[str, Any]:
    """Results of some steps with error feedback: shared ones, and those of each worker."""
    size = sum(torch.Size(shape).numel() for shapes in SHAPES.values() for shape in shapes)
    reducer = ErrorFeedback(reducer_of(case.method(), size))
    communicator.declare_kinds(reducer.kinds)
    state, alike, rows = None, {}, {}
    for number in range(STEPS):
        segments = []
        for name, shapes in SHAPES.items():
            length = sum(torch.Size(shape).numel() for shape in shapes)
            generator = torch.Generator().manual_seed(1000 * number + length)
            drawn = torch.randn(N, length, generator=generator)
            segments.append(
                Segment(name, drawn[list(communicator.local_workers)], shapes, weights_of(shapes))
            )
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(5, number), communicator)
        for name in SHAPES:
            alike[f"mean {number} {name}"] = reduced.mean[name].clone()
            rows[f"left {number} {name}"] = reduced.residual[name].clone()
            rows[f"sent {number} {name}"] = torch.from_numpy(reduced.compressed[name].sent)
    rows["bytes"] = torch.from_numpy(communicator.take_charges())
    rows["link bytes"] = torch.from_numpy(communicator.take_link_bytes())
    alike |= dict(walk(state, "state", shared=True))
    rows |= dict(walk(state, "state"))
    return {"alike": alike, "rows": rows}


def _require_equal(name: str, expected: dict[str, Any], found: dict[str, Any], local_workers: range) -> None:
    for what, tensor in expected["alike"].items():
        _require_same(tensor, found["alike"][what], f"{name}: {what}")
    for what, tensor in expected["rows"].items():
        _require_same(
            tensor[local_workers.start : local_workers.stop], found["rows"][what], f"{name}: {what}"
        )


def _require_same(one: Tensor, other: Tensor, what: str) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True, msg=what)
