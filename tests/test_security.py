"""Hostile input and users' mistakes that would run code or write outside ``output``: refusals."""

import json
import logging
import sys
import types
from pathlib import Path

import hydra._internal.hydra
import pytest
import yaml
from command_line import command
from configs import resolved
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import ConfigCompositionException
from own_process import say

import trainers.config.targets
from trainers.config.guard import GuardedLoader
from trainers.config.hydra_section import OWN_LOGGING, check_named_code
from trainers.config.targets import check_factories, check_targets

ROOT = Path(__file__).parents[1]
QUICK = ("experiment=quick", "trainer.steps=2")


# Untrusted files


def touch(marker: Path) -> dict:
    return {
        "_target_": "pathlib.Path.touch",
        "_args_": [{"_target_": "pathlib.Path", "_args_": [str(marker)]}],
    }


def log_file(marker: Path) -> dict:
    handler = {"class": "logging.FileHandler", "filename": str(marker)}
    return {"version": 1, "root": {"handlers": ["x"]}, "handlers": {"x": handler}}


HYDRA_SECTIONS = {  # without the guard, each creates the marker
    "callbacks": lambda marker: {"callbacks": {"x": touch(marker)}},
    "run": lambda marker: {"run": {"dir": str(marker)}},
    "output_subdir": lambda marker: {"output_subdir": str(marker)},
    "job_logging": lambda marker: {"job_logging": log_file(marker)},
}
MORE_SECTIONS = {
    "job": {"job": {"env_set": {"LD_PRELOAD": "/x.so"}}},
    "launcher": {"launcher": {"_target_": "hydra_plugins.x.X"}},
    "sweep over hydra.job.env_set.X": {"sweeper": {"params": {"hydra.job.env_set.X": "1,2"}}},
    "sweep over +hydra.callbacks": {"sweeper": {"params": {"+hydra.callbacks": "{}"}}},
    "sweep": {"sweep": {"dir": "/x"}},
}


def strangers_file(folder: Path, section: dict) -> list[str]:
    """An experiment with a ``hydra`` section, and the command line that uses it."""
    path = folder / "theirs" / "experiment" / "nice.yaml"
    path.parent.mkdir(parents=True)
    defaults = {"defaults": ["/experiment/quick", "_self_"]}
    path.write_text("# @package _global_\n" + yaml.safe_dump(defaults | {"hydra": section}))
    own = [f"output={folder / 'o'}", "tracker=none", "trainer.steps=2"]
    return [f"--config-dir={folder / 'theirs'}", "experiment=nice", *own]


@pytest.mark.parametrize("section", HYDRA_SECTIONS)
def test_hydra_section_of_a_file_runs_nothing(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    marker = tmp_path / "marker"
    words = strangers_file(tmp_path, HYDRA_SECTIONS[section](marker))
    status, said = say(monkeypatch, capfd, *words)
    assert status == 1 and said.count("\n") == 1
    assert f"a config file must not set hydra.{section}" in said
    assert not marker.exists() and not (tmp_path / "o").exists()
    monkeypatch.setattr(hydra._internal.hydra, "ConfigLoaderImpl", ConfigLoaderImpl)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    say(monkeypatch, capfd, *words)
    assert marker.exists(), "the attack does nothing anyway: it proves nothing"


@pytest.mark.parametrize("what", MORE_SECTIONS)
def test_more_of_the_hydra_section(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    status, said = say(monkeypatch, capfd, *strangers_file(tmp_path, MORE_SECTIONS[what]))
    assert status == 1 and said.count("\n") == 1
    assert f"a config file must not {'' if what.startswith('sweep ') else 'set hydra.'}{what}" in said


SEARCH_PATHS = {
    "as it stands": "hydra: {searchpath: ['pkg://theirs_payload']}\n",
    "by interpolation": "x: {searchpath: ['pkg://theirs_payload']}\nhydra: ${x}\n",
    "beside a typed one": "hydra: {searchpath: ['pkg://theirs_payload']}\n",
}


@pytest.mark.parametrize("how", SEARCH_PATHS)
def test_the_search_path_of_a_primary_config_imports_nothing(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "theirs_payload.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (tmp_path / "theirs").mkdir()
    text = f"defaults: [config, _self_]\n{SEARCH_PATHS[how]}"
    (tmp_path / "theirs" / "nice.yaml").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    typed = ["hydra.searchpath=[]"] if how == "beside a typed one" else []
    words = [f"--config-dir={tmp_path / 'theirs'}", "--config-name=nice", f"output={tmp_path / 'o'}"]
    words += ["tracker=none", "model=mlp", "trainer.steps=2", *typed]
    status, said = say(monkeypatch, capfd, *words)
    assert status == 1 and said.count("\n") == 1
    assert "a config file must not set hydra.searchpath" in said
    assert not marker.exists() and not (tmp_path / "o").exists()
    if not typed:
        monkeypatch.setattr(hydra._internal.hydra, "ConfigLoaderImpl", ConfigLoaderImpl)
        say(monkeypatch, capfd, *words)
        assert marker.exists(), "the attack does nothing anyway: it proves nothing"
        sys.modules.pop("theirs_payload")


CHOICES_OF_FILES = {
    "launcher": ["/experiment/quick", {"override /hydra/launcher": "joblib"}],
    "logging": ["/experiment/quick", {"override /hydra/job_logging": "default"}],
    "logging of Hydra": ["/experiment/quick", {"override /hydra/hydra_logging": "disabled"}],
    "a launcher by its path": ["/experiment/quick", "/hydra/launcher/joblib"],
    "a file of theirs in place of a launcher": ["/experiment/quick", "/experiment/other@hydra.launcher"],
}


@pytest.mark.parametrize("what", CHOICES_OF_FILES)
def test_files_choose_nothing_of_hydras(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    words = strangers_file(tmp_path, {})
    path = tmp_path / "theirs" / "experiment" / "nice.yaml"
    path.with_name("other.yaml").write_text("n_jobs: 2\n")
    path.write_text("# @package _global_\n" + yaml.safe_dump({"defaults": CHOICES_OF_FILES[what]}))
    status, said = say(monkeypatch, capfd, *words)
    assert status == 1 and said.count("\n") == 1 and "a config file must not choose" in said
    assert not (tmp_path / "o").exists()


def test_a_file_in_the_place_of_a_launcher_that_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Hydra uses the first file with a name, even if an installed launcher has the same name."""
    words = strangers_file(tmp_path, {})
    path = tmp_path / "theirs" / "hydra" / "launcher" / "joblib.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("_target_: hydra._internal.core_plugins.basic_launcher.BasicLauncher\n")
    status, said = say(monkeypatch, capfd, "-m", *words, "hydra/launcher=joblib")
    assert status == 1 and said.count("\n") == 1 and "a config file must not set hydra.launcher" in said


def test_a_file_may_say_what_a_sweep_crosses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    words = strangers_file(tmp_path, {"sweeper": {"params": {"seed": "0,1"}}})
    assert say(monkeypatch, capfd, *words, "seed=0") == (0, "")  # one job of that sweep


def test_launchers_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    words = ("tracker=none", f"output={tmp_path}", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1")
    assert say(monkeypatch, capfd, *QUICK, *words) == (0, "")
    status, said = say(monkeypatch, capfd, *QUICK, *words, "hydra.launcher._target_=os.system")
    assert status == 1 and said == "error: hydra.launcher must not name code, got 'os.system'\n"


def test_jobs_in_other_processes_are_guarded_too(tmp_path: Path) -> None:
    """The processes of joblib compose the sweep's files one by one."""
    marker = tmp_path / "marker"
    words = strangers_file(tmp_path, HYDRA_SECTIONS["run"](marker) | {"output_subdir": "x"})
    words = [word for word in words if not word.startswith("experiment=")]
    result = command(
        "-m", *words, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "experiment=quick,nice"
    )
    assert result.returncode != 0
    assert "a config file must not set hydra.run" in result.stderr
    assert not marker.exists()


def test_the_guard_stands() -> None:
    assert hydra._internal.hydra.ConfigLoaderImpl is GuardedLoader


def test_pickles_of_hydra_are_not_opened(tmp_path: Path) -> None:
    result = command(f"--experimental-rerun={tmp_path}/x.pickle")
    assert result.returncode == 1
    assert result.stderr.startswith("error: --experimental-rerun") and result.stderr.count("\n") == 1


# Names of code

BAD_TARGETS = {
    ("compressor", "os.system"): "must be compressors.MODULE.NAME",
    ("compressor", "models.mlp.mlp"): "must be compressors.MODULE.NAME",
    ("compressor", "compressors.core.codec.torch.load"): "there is no file compressors/core/codec/torch.py",
    (
        "compressor",
        "compressors.core.codec.torch",
    ): "compressors.core.codec defines no function or class torch",
    ("compressor", "compressors.core.codec.Codec"): "is not a compressor: compressors.core has only parts",
    ("compressor", "compressors.top_k.Tensor"): "compressors.top_k defines no function or class Tensor",
    ("compressor", "compressors.nothing.X"): "there is no file compressors/nothing.py",
    ("compressor", "compressors.core.payloads.Sparse"): "is not a compressor",
    ("feedback", "compressors.top_k.TopK"): "must be compressors.feedback.NAME",
    ("data", "data.download.fetch"): "must take its settings by keyword only",
    (
        "data",
        "data.text.language_modelling.Any",
    ): "language_modelling defines no function or class Any",
    ("model", "models.convex.kept_optimum._write"): "must be models.MODULE.NAME",
    ("schedule", "trainers.run.environment.environment"): "must be trainers.schedules.NAME",
    ("tracker", "trainers.run.trackers.Trackers"): "must take its settings by keyword only",
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


@pytest.mark.parametrize(
    "hidden", [{"a": touch(Path("x"))}, [[touch(Path("x"))]], {"_args_": [1]}, "${oc.env:X}"]
)
def test_targets_are_found_at_every_depth(hidden: object) -> None:
    config = resolved("model=mlp", "data=digits")
    check_targets(config)
    config["model"]["hidden"] = hidden
    with pytest.raises(ValueError, match=r"^model\.hidden"):
        check_targets(config)


def test_ones_own_compressor_needs_a_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a method nested in another."""
    text = (ROOT / "compressors" / "top_k.py").read_text()
    (tmp_path / "compressors").mkdir()
    for name in ("stride", "chain"):
        (tmp_path / "compressors" / f"{name}.py").write_text(text)
    module = types.ModuleType("compressors.stride")
    monkeypatch.setitem(sys.modules, "compressors.stride", module)
    exec(compile(text, "stride.py", "exec"), module.__dict__)  # like an import
    config = {"compressor": {"_target_": "compressors.stride.TopK", "density": 0.1}}
    check_factories(config)
    nested = {"_target_": "compressors.chain.Chain", "first": dict(config["compressor"])}
    nested["second"] = config["compressor"]
    check_factories({"compressor": nested})
    monkeypatch.setattr(trainers.config.targets, "ROOT", tmp_path)
    monkeypatch.setattr(
        trainers.config.targets, "GROUPS", {"compressor": trainers.config.targets.GROUPS["compressor"]}
    )
    check_targets({"compressor": nested})


# Paths


def test_a_link_to_itself_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    (tmp_path / "mine").symlink_to("mine")
    words = (*QUICK, "tracker=none", f"output={tmp_path}", "name=mine")
    status, said = say(monkeypatch, capfd, *words)
    assert status == 1 and said.count("\n") == 1 and "mine/" in said and "cannot be followed" in said


def test_a_link_in_output_leads_no_run_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    outside, output = tmp_path / "outside", tmp_path / "o"
    outside.mkdir()
    output.mkdir()
    (output / "mine").symlink_to(outside)
    words = (*QUICK, "tracker=none", f"output={output}", "name=mine")
    status, said = say(monkeypatch, capfd, *words)
    assert status == 1 and said.count("\n") == 1 and f"must be inside output={output}" in said
    assert not list(outside.iterdir())
    (tmp_path / "link").symlink_to(output)  # the output folder itself may be a link
    assert say(monkeypatch, capfd, *QUICK, "tracker=none", f"output={tmp_path / 'link'}") == (0, "")
    (summary,) = output.glob("*/*/summary.json")
    assert json.loads(summary.read_text())["status"] == "finished"


@pytest.mark.parametrize(
    "target",
    [
        *(
            "optuna.samplers._base.abc",
            "optuna.samplers.os.system",
            "optuna.samplersX.A",
            "optuna.study.Study",
        ),
        *("hydra_plugins", "hydra_plugins.system", "hydra_plugins.a.system", "hydra_pluginsX.a.A"),
    ],
)
def test_only_classes_of_plugins_are_named(target: str) -> None:
    logging = dict.fromkeys(("hydra_logging", "job_logging"), OWN_LOGGING)
    check_named_code({**logging, "sweeper": {"sampler": {"_target_": "optuna.samplers.TPESampler"}}})
    with pytest.raises(ConfigCompositionException, match="must not name code"):
        check_named_code({**logging, "sweeper": {"sampler": {"_target_": target}}})
