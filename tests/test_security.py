"""Configs of somebody else that would run code: refusals."""

import shutil
from pathlib import Path

import pytest
import yaml
from command_line import command
from configs import CONF, resolved
from own_process import say

from trainers.config.targets import check_factories, check_targets

QUICK = ("experiment=quick", "trainer.steps=2")


# Hydra's section


def touch(marker: Path) -> dict:
    return {
        "_target_": "pathlib.Path.touch",
        "_args_": [{"_target_": "pathlib.Path", "_args_": [str(marker)]}],
    }


def log_file(marker: Path) -> dict:
    handler = {"class": "logging.FileHandler", "filename": str(marker)}
    return {"version": 1, "root": {"handlers": ["x"]}, "handlers": {"x": handler}}


SECTIONS = {  # of a stranger's file; Hydra alone would create the marker
    "callbacks.x._args_.0._args_": lambda marker: {"callbacks": {"x": touch(marker)}},
    "job_logging.handlers.x.class": lambda marker: {"job_logging": log_file(marker)},
    "job.env_set.LD_PRELOAD": lambda marker: {"job": {"env_set": {"LD_PRELOAD": "/x.so"}}},
    "launcher._target_": lambda marker: {"launcher": {"_target_": "os.system"}},
    "callbacks": lambda marker: {"callbacks": "${x}"},
    "sweeper.params.+hydra.callbacks": lambda marker: {"sweeper": {"params": {"+hydra.callbacks": "{}"}}},
    "sweeper.params.seed._args_.0._target_": lambda marker: {"sweeper": {"params": {"seed": touch(marker)}}},
    "sweeper.params.x.0._args_.0._target_": lambda marker: {"sweeper": {"params": {"x": [touch(marker)]}}},
    "sweeper.params.seed": lambda marker: {"sweeper": {"params": {"seed": "${budget.density}"}}},
}


def strangers_file(folder: Path, section: object) -> list[str]:
    """An experiment with a ``hydra`` section, and the command line that uses it."""
    path = folder / "theirs" / "experiment" / "nice.yaml"
    path.parent.mkdir(parents=True)
    content = {"defaults": ["/experiment/quick", "_self_"], "hydra": section}
    path.write_text("# @package _global_\n" + yaml.safe_dump(content))
    own = [f"output={folder / 'o'}", "tracker=none", "trainer.steps=2"]
    return [f"--config-dir={folder / 'theirs'}", "experiment=nice", *own]


@pytest.mark.parametrize("key", SECTIONS)
def test_a_strangers_file_names_no_code_for_hydra(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    marker = tmp_path / "marker"
    words = [*(["-m"] if key.startswith("sweeper") else []), *strangers_file(tmp_path, SECTIONS[key](marker))]
    status, said = say(monkeypatch, capfd, *words)
    assert status == 1 and said.count("\n") == 1 and f"a config file must not set hydra.{key}, " in said
    assert not marker.exists() and not (tmp_path / "o").exists()


def test_a_strangers_file_is_none_of_hydras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Neither in the place of an installed launcher, whose name it has, nor by a defaults list."""
    words = strangers_file(tmp_path, {})
    launcher = tmp_path / "theirs/hydra/launcher/joblib.yaml"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("_target_: os.system\n")
    (tmp_path / "theirs/experiment/other.yaml").write_text("_target_: os.system\n")
    experiment = tmp_path / "theirs/experiment/nice.yaml"
    other = ["/experiment/other@hydra.launcher"]
    for typed, defaults in (("hydra/launcher=joblib", []), ("seed=0", other), ("a search path", other)):
        experiment.write_text("# @package _global_\n" + yaml.safe_dump({"defaults": defaults}))
        if typed == "a search path":
            typed = f"hydra.searchpath=[file://{tmp_path / 'theirs'}]"
            words.pop(0)  # --config-dir
        status, said = say(monkeypatch, capfd, "-m", *words, typed)
        assert status == 1 and said.count("\n") == 1 and "must not set hydra.launcher._target_" in said


@pytest.mark.parametrize(
    "text",
    ["hydra: {searchpath: ['pkg://theirs']}\n", "x: {searchpath: ['pkg://theirs']}\nhydra: ${x}\n"],
)
def test_the_search_path_of_a_primary_config_imports_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "theirs.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (tmp_path / "nice.yaml").write_text(f"defaults: [config, _self_]\n{text}")
    monkeypatch.syspath_prepend(tmp_path)
    words = [f"--config-dir={tmp_path}", "--config-name=nice", "tracker=none", "model=mlp", "trainer.steps=2"]
    status, said = say(monkeypatch, capfd, *words, f"output={tmp_path / 'o'}")
    assert status == 1 and said.count("\n") == 1
    assert "a config file must not set hydra.searchpath" in said and not marker.exists()


def test_a_file_may_say_what_a_sweep_crosses_and_choose_a_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    words = strangers_file(tmp_path, {"sweeper": {"params": {"seed": "0,1"}}, "help": {"footer": "x"}})
    path = tmp_path / "theirs/experiment/nice.yaml"
    path.write_text(path.read_text().replace("- _self_", "- override /hydra/launcher: joblib\n- _self_"))
    assert say(monkeypatch, capfd, *words, "seed=0") == (0, "")  # one job of that sweep


def test_a_copy_of_our_configs_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    shutil.copytree(CONF, tmp_path / "conf")
    words = (f"--config-path={tmp_path / 'conf'}", *QUICK, "tracker=none", f"output={tmp_path / 'o'}")
    assert say(monkeypatch, capfd, *words) == (0, "")


def test_pickles_of_hydra_are_not_opened(tmp_path: Path) -> None:
    result = command(f"--experimental-rerun={tmp_path}/x.pickle")
    assert result.returncode == 1
    assert result.stderr.startswith("error: --experimental-rerun") and result.stderr.count("\n") == 1


# Names of code

BAD_TARGETS = {
    ("compressor", "os.system"): "must be compressors.MODULE.NAME",
    ("compressor", "models.mlp.mlp"): "must be compressors.MODULE.NAME",
    ("compressor", "compressors.core.codec.torch.load"): "compressors.core.codec.torch cannot be imported",
    ("compressor", "compressors.core.codec.torch"): "codec defines no function or class torch",
    ("compressor", "compressors.top_k.Tensor"): "compressors.top_k defines no function or class Tensor",
    ("compressor", "compressors.nothing.X"): "compressors.nothing cannot be imported: ModuleNotFoundError",
    ("compressor", "compressors.core.payloads.Sparse"): "is not a compressor",
    ("feedback", "compressors.top_k.TopK"): "must be compressors.feedback.NAME",
    ("data", "data.download.fetch"): "must take its settings by keyword only",
    ("model", "models.convex.kept_optimum._write"): "must be models.MODULE.NAME",
    ("schedule", "trainers.run.environment.environment"): "must be trainers.schedules.NAME",
    ("tracker", "trainers.run.trackers.JsonLines"): "must take its settings by keyword only",
}


@pytest.mark.parametrize(("group", "target"), BAD_TARGETS)
def test_targets_are_factories_of_their_group(group: str, target: str) -> None:
    config = resolved("model=mlp", "data=digits")
    config[group]["_target_"] = target
    with pytest.raises(ValueError, match=BAD_TARGETS[group, target]):
        check_both(config)


def check_both(config: dict) -> None:
    check_targets(config)
    check_factories(config)


@pytest.mark.parametrize("hidden", [{"a": touch(Path("x"))}, [[touch(Path("x"))]], "${oc.create:{}}"])
def test_targets_are_found_at_every_depth(hidden: object) -> None:
    config = resolved("model=mlp", "data=digits")
    check_targets(config)
    config["model"]["hidden"] = hidden
    with pytest.raises(ValueError, match=r"^model\.hidden"):
        check_targets(config)
