"""Runs from a script or notebook: configs without Hydra's state, finished runs, the example notebook."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
from command_line import ROOT, command
from configs import resolved
from docs_pages import blocks
from hydra import compose as hydras_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from total_error._names import FOLDERS
from trainers.api import ConfigError, compose, train

GUIDE = ROOT / "docs/guides/own_script.md"
NOTEBOOK = ROOT / "examples/own_method.ipynb"
PACKAGE = ROOT / "examples/my_compressor/my_compressor"  # the notebook's method, in a package
SMALL = (
    "model=mlp",
    "model.hidden=[4]",
    "workers=2",
    "trainer.steps=2",
    "trainer.batch_size=4",
    "tracker=none",
)


def test_a_config_is_that_of_the_command_line() -> None:
    overrides = ("experiment=quick", "compressor=random_k", "seed=3")
    config = compose(*overrides)
    assert config == resolved(*overrides)
    assert config["name"] == "mlp-digits-random_k"


def test_hydra_of_the_caller_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text("x: ${hydra:job.name}\n")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(tmp_path), job_name="theirs", version_base="1.3"):
        theirs = hydras_compose("theirs", return_hydra_config=True)
        HydraConfig.instance().set_config(theirs)
        compose("experiment=quick")
        assert theirs.x == "theirs"
        assert hydras_compose("theirs", ["x=1"]).x == 1


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("seed=0,1",), "compose takes the settings of one run, got seed=0,1"),
        (("-m", "seed=0"), "compose takes settings, as KEY=VALUE, got -m"),
        (("compressor=none", "budget.density=0.1"), "budget.density has no effect with this compressor"),
    ],
)
def test_what_the_command_refuses_is_refused(overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(*overrides)
    assert str(caught.value).startswith(said)


def test_a_run_is_read_and_found_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = compose(*SMALL, "tracker=none", "compressor=none", f"output={tmp_path}")
    run = train(config)
    assert run.folder.is_relative_to(tmp_path)
    assert run.summary["step"] == 2 == run.records[-1]["step"]
    assert run.records[0]["comm/bytes_sent"] > 0
    capfd.readouterr()
    assert train(config).summary == run.summary
    assert "is finished already; its numbers:" in capfd.readouterr().out


def test_what_cannot_be_trained_is_refused_in_one_line(tmp_path: Path) -> None:
    config = compose(*SMALL, "tracker=none", "compressor=top_k", f"output={tmp_path}")
    config["compressor"]["density"] = 2
    with pytest.raises(ConfigError, match=r"^TopK.density must be in \(0, 1\], got 2$"):
        train(config)


@pytest.mark.slow
def test_the_notebook_brings_a_method_and_prints_a_verdict_at_equal_bytes(tmp_path: Path) -> None:
    """In a copy of the checkout, because the notebook writes a file and a yaml into it."""
    for folder in (*FOLDERS, "conf", "total_error"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("pages"))
    shutil.copy(ROOT / "run.py", tmp_path)
    (tmp_path / "examples").mkdir()
    words = (str(NOTEBOOK), str(tmp_path / "examples"))
    launcher = [sys.executable, "tests/helpers/run_notebook.py"]
    done = command(*words, launcher=launcher, MPLBACKEND="agg", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "compressors/stride.py").read_text() == (PACKAGE / "stride.py").read_text().rstrip()
    runs = list((tmp_path / "outputs/own_method").glob("*/*/summary.json"))
    sent = [json.loads(path.read_text())["comm/link_bytes_sent_total"] for path in runs]
    assert len(sent) == 6 and max(sent) < 1.03 * min(sent)
    assert re.search(r"^  minus top_k, density 0.01: \S+ \[\S+, \S+\]; \w+", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1] == "drawn: top_k=23 stride=23"


def test_the_example_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = [block for block in blocks(GUIDE, "python") if "from trainers.api" in block]
    (tmp_path / "example.py").write_text(block)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("example.py")
    accuracy, step, folder = capsys.readouterr().out.splitlines()[-1].split()
    assert 0 < float(accuracy) <= 1 and step == "23" and Path(folder).is_relative_to("outputs")
