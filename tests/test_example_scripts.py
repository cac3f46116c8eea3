"""Example scripts: commands in their docstrings, training in several processes on a CPU, printed bytes."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from command_line import ROOT, command

ALL = sorted((ROOT / "examples/scripts").glob("*.py"))
SCRIPTS = [
    script for script in ALL if script.stem != "checkpointed"
]  # tests/trainers/test_script_state.py runs it
NEEDS = {"accelerate_loop": ("accelerate",), "hf_trainer": ("accelerate",), "lightning_fit": ("lightning",)}
DENSE_BYTES = 4 * (64 * 128 + 128 + 128 * 10 + 10)  # of the gradient; all scripts train the same network


def processes_of(script: Path) -> int:
    """The number of processes in the command in the script's docstring; the command may have options."""
    said = ast.get_docstring(ast.parse(script.read_text())) or ""
    ((found, _),) = re.findall(
        rf"^ *torchrun --nproc-per-node=(\d) examples/scripts/{script.name}( --.+)?$", said, re.M
    )
    return int(found)


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.stem)
def test_every_script_says_how_to_start_it(script: Path) -> None:
    assert processes_of(script) in (2, 4)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_trains_and_prints_its_bytes(script: Path) -> None:
    for package in NEEDS.get(script.stem, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: pip install -e '.[examples]'")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    runner = str(ROOT / "tests/helpers/example_script.py")
    launcher = [*torchrun, f"--nproc-per-node={processes_of(script)}", runner]
    done = command(str(script), launcher=launcher, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    (loss,) = re.findall(r"loss (\d\.\d+)", done.stdout)
    assert float(loss) < 2.2, "that of guessing is 2.3"
    (sent,) = re.findall(r"bytes sent per (?:worker|node|replica|reader) ([\d,]+)", done.stdout)
    assert 0 < int(sent.replace(",", "")) < 0.3 * DENSE_BYTES * 40, "of at least 40 steps"
