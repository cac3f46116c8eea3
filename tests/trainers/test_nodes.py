"""Compression between nodes: the hook against a training in one process, resumed states, refusals."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from benches import ENVIRONMENT, ROOT, needs_root
from own_script import STEPS, by_hand, network
from processes import run_in_processes
from resuming import config_of
from script_nodes import in_two_nodes, refused_nodes
from training import train

from benchmarks.netns import hosts
from trainers.comm.communicator import Communicator
from trainers.comm.links import all_reduce_bytes
from trainers.comm.nodes import nodes_of
from trainers.config.errors import ConfigError
from trainers.run import training
from trainers.run.folder import RunFolder


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    return run_in_processes(in_two_nodes, 4)


@pytest.fixture(scope="module")
def expected() -> tuple[torch.Tensor, dict[str, float]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    trained = by_hand(4, num_nodes=2)
    torch.set_num_threads(threads)
    return trained


def test_the_hook_has_the_bits_of_one_process(
    found: list[dict[str, Any]], expected: tuple[torch.Tensor, dict[str, float]]
) -> None:
    for result in found:
        for way in ("weights", "interleaved", "resumed"):
            assert torch.equal(result[way], expected[0]), way
        assert result["metrics"] == expected[1]
        assert result["alone"]
    flat, _ = by_hand(4)
    assert not torch.equal(flat, expected[0])


def test_one_process_of_a_node_sends(found: list[dict[str, Any]]) -> None:
    assert [result["sends"] for result in found] == [True, False, True, False]
    for node, results in enumerate((found[:2], found[2:])):
        assert all(name.startswith(f"worker/{node}/") for result in results for name in result["names"])


def test_bytes_inside_nodes_are_an_all_reduce_and_what_reached_the_node(found: list[dict[str, Any]]) -> None:
    metrics = found[0]["metrics"]
    reached = metrics["comm/link_bytes_received_total"]
    size = sum(p.numel() for p in network().parameters())
    inside = STEPS * all_reduce_bytes(4 * size, 2) + reached / 2
    assert metrics["comm/inside_bytes_sent_total"] == pytest.approx(inside)
    summary = found[3]["summary"]
    assert summary["comm/inside_bytes_sent_total"] == metrics["comm/inside_bytes_sent_total"]
    assert summary["comm/break_even_bits_per_second"] > 0


@needs_root
@pytest.mark.slow
def test_a_host_of_two_processes_sends_one_message() -> None:
    """Between two hosts with an interface each; the surplus is headers, barriers and the ledger's numbers."""
    script = str(ROOT / "tests/helpers/node_traffic.py")
    with hosts(2) as made:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
        launcher += [f"--master-addr={made.address(0)}", "--master-port=29500"]
        environment = ENVIRONMENT | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        running = [
            subprocess.Popen(
                made.command(host, [*launcher, f"--node-rank={host}", script]),
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for host in range(2)
        ]
        for process in running:
            said = json.loads(process.communicate()[0])
            assert process.returncode == 0
            assert said["charged"] == 10 * 8 * 20_000  # 20,000 entries of 8 bytes to the other node
            assert 1 < said["carried"] / said["charged"] < 1.1


def test_a_node_of_one_worker_is_that_worker() -> None:
    one, other = (train("top_k", "layer", "gradient", num_nodes=number) for number in (None, 4))
    assert torch.equal(one["parameters"], other["parameters"])
    inside = [metrics.pop("comm/inside_bytes_sent_total") for metrics in other["metrics"]]
    assert set(inside) == {0.0}


def test_unsuitable_nodes_are_refused_in_a_line() -> None:
    for said in run_in_processes(refused_nodes, 4):
        unequal, overlapping, without, number = said
        rule = "within must divide the processes of the model into nodes of equal size, got"
        assert unequal == f"{rule} 1, 3 processes"
        assert overlapping.startswith(rule)
        assert without.startswith("within='node' needs LOCAL_RANK and LOCAL_WORLD_SIZE, which torchrun sets")
        assert number == "within must be 'node', the process group of a node's processes, or None, got 2"


def test_a_checkpoint_of_other_nodes_is_refused_in_a_line(tmp_path: Path) -> None:
    small = ("model=mlp", "model.hidden=[16]", "workers=4", "trainer.batch_size=8", "trainer.steps=2")
    first = config_of(tmp_path, *small, "nodes=2")
    training.train(first)
    saved = RunFolder(first).path
    later = config_of(tmp_path, *small, "trainer.steps=4", "nodes=4", f"resume={saved}")
    with pytest.raises(ConfigError, match=r": nodes must be 2, as in the checkpoint, got 4$"):
        training.train(later)


@pytest.mark.parametrize(
    ("workers", "processes", "nodes", "rule"),
    [
        (4, 1, 3, r"^nodes must divide workers \(4\), got 3$"),
        (12, 6, 4, r"^processes must divide nodes \(4\) or be a multiple, got 6$"),
    ],
)
def test_workers_that_do_not_divide_are_refused(workers: int, processes: int, nodes: int, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        nodes_of(Communicator(workers, world_size=processes), nodes)
