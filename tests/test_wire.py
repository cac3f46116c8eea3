"""Encodings from the command line: any number of processes, one line for a broken message."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import command
from configs import resolved

from trainers.comm.communicator import Communicator
from trainers.config.errors import ConfigError
from trainers.run import session

SMALL = ["model=mlp", "model.hidden=[16]", "trainer.batch_size=8", "tracker=none", "trainer.steps=6"]
SMALL += ["trainer.log_every=2", "budget.density=0.05"]
NUM_PARAMETERS = 64 * 16 + 16 + 16 * 10 + 10


def left_behind(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    (path,) = folder.glob("*/*/metrics.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return path.parent.name, [
        {name: v for name, v in line.items() if not name.startswith("time/")} for line in lines
    ]


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_change_nothing(processes: int, tmp_path: Path) -> None:
    coded = ["workers=4", "compressor=hard_threshold", "wire.indices=auto", "wire.values=int8"]
    found = []
    for number in (1, processes):
        output = tmp_path / str(number)
        result = command(*SMALL, *coded, f"processes={number}", f"output={output}")
        assert result.returncode == 0, result.stderr
        found.append(left_behind(output))
    assert found[0] == found[1]
    last = [record for record in found[0][1] if "comm/bytes_sent" in record][-1]
    elements = last["compression/density_mean"] * last["step"] * NUM_PARAMETERS
    per_element = last["comm/bytes_sent_total"] / elements
    bound = last["comm/entropy_bound_bytes_total"] / elements
    assert 1 < bound < per_element < bound + 0.5


def test_a_broken_message_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third call of the collective on, the last worker's message is truncated."""
    told, calls = Communicator.all_gather_messages, []

    def cut_short(self: Communicator, *arguments: Any) -> list[Any]:
        calls.append(1)
        received = told(self, *arguments)
        return received if len(calls) < 3 else [*received[:-1], received[-1][:-3]]

    monkeypatch.setattr(Communicator, "all_gather_messages", cut_short)
    config = resolved(*SMALL, "workers=2", "compressor=top_k", "wire.indices=auto", f"output={tmp_path}")
    said = re.escape("the message of worker 1 in step ") + "[123] cannot be decoded: it ends after"
    with pytest.raises(ConfigError, match=said):
        session.run(config)
