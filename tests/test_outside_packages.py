"""Compressors, feedbacks, models and data of installed packages, and restrictions on these packages."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from command_line import command
from configs import resolved
from knobs_here import entry_of
from own_process import say
from packages import EXAMPLE, install, install_example, write_metadata

from trainers.config.targets import check_factories, check_targets, packages_of
from trainers.identity.identity import identify, subject_of

ROOT = Path(__file__).parents[1]
WORDS = ("experiment=quick", "tracker=none")
TINY = (*WORDS, "model=mlp", "trainer.steps=2", "workers=2")
METHOD = (EXAMPLE / "my_compressor" / "stride.py").read_text()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path for packages; modules imported from it are removed afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    known = set(sys.modules)
    yield folder
    for name in set(sys.modules) - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def read(output: Path, file: str) -> str:
    (path,) = output.glob(f"*/*/{file}")
    return path.read_text()


# The example


def test_the_example_is_the_one_of_the_guide() -> None:
    block = (ROOT / "docs/guides/add_a_compressor.md").read_text().split("```python\n")[1].split("```")[0]
    assert block.strip() == METHOD.strip()
    assert len(METHOD.splitlines()) <= 40


def test_a_run_of_an_installed_method_is_like_any_other(tmp_path: Path) -> None:
    """environment.json names the package of the method."""
    site, output = tmp_path / "site", tmp_path / "o"
    install_example(site)
    words = (*TINY, "trainer.steps=12", "compressor=stride", "compressor.every=20")
    result = command(*words, f"output={output}", PYTHONPATH=str(site))
    assert result.returncode == 0, result.stderr
    config = yaml.safe_load(read(output, "config.yaml"))
    assert config["compressor"] == {"_target_": "my_compressor.stride.Stride", "every": 20}
    summary = json.loads(read(output, "summary.json"))
    assert (summary["status"], summary["step"]) == ("finished", 12)
    assert summary["compression/density_mean"] == pytest.approx(1 / 20, abs=0.002)
    assert summary["id"] == identify(config).id
    assert subject_of(config) == subject_of(resolved(*TINY, "compressor=top_k"))
    assert json.loads(read(output, "environment.json"))["outside_packages"] == {"my-compressor": "0.1.0"}


GRACES = """
import torch


class TopK:
    def __init__(self, share):
        self.share = share

    def compress(self, tensor, name):
        kept = tensor.abs().topk(max(1, int(tensor.numel() * self.share))).indices
        return [tensor[kept], kept], tensor.numel()

    def decompress(self, tensors, ctx):
        values, kept = tensors
        return values.new_zeros(ctx).index_put((kept,), values)
"""


def test_a_compressor_of_graces_runs_in_the_adapter(tmp_path: Path) -> None:
    site, output = tmp_path / "site", tmp_path / "o"
    adapted = "_target_: compressors.grace.Grace\ncompressor:\n  _target_: theirs.top.TopK\n  share: 0.1\n"
    install(site, "theirs", {"top.py": GRACES, "conf/compressor/theirs.yaml": adapted})
    result = command(*TINY, "compressor=theirs", "scope=global", f"output={output}", PYTHONPATH=str(site))
    assert result.returncode == 0, result.stderr
    summary = json.loads(read(output, "summary.json"))
    model = summary["layers"].values()
    kept = int(0.1 * sum(layer["elements"] for layer in model))
    assert summary["comm/message_bytes_total"] == 2 * kept * (4 + 8)  # 2 steps; GRACE's indices are int64
    alone = command(*TINY, "compressor._target_=theirs.top.TopK", PYTHONPATH=str(site))
    assert "theirs.top.TopK is not a compressor: it has no encode or reduce" in alone.stderr


def test_a_knob_of_an_installed_method_meets_byte_budgets(site: Path) -> None:
    """Declared in its class, or named: a setting of GRACE's compressor."""
    install_example(site)
    adapted = "_target_: compressors.grace.Grace\ncompressor:\n  _target_: theirs.top.TopK\n  share: 0.1\n"
    install(site, "theirs", {"top.py": GRACES, "conf/compressor/theirs.yaml": adapted})
    knob = entry_of("stride").knob
    assert knob is not None and knob.overrides(40.4) == "compressor.every=40"
    assert knob.match(lambda every: 2e8 / every, 1e6, knob.first_value(100, 1000)) == 200
    assert entry_of("theirs").knob is None
    named = entry_of("theirs", "compressor.compressor.share").knob
    assert named is not None and named.directed(lambda share: share).slope == 1


WAYS = {
    "two processes": ("processes=2", "compressor=stride"),
    "a sweep": ("-m", "compressor=stride,top_k"),
    "a sweep of joblib": (
        "-m",
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "compressor=stride,top_k",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_processes_find_installed_methods(way: str, tmp_path: Path) -> None:
    site, output = tmp_path / "site", tmp_path / "o"
    install_example(site)
    result = command(*WAYS[way], *TINY, f"output={output}", PYTHONPATH=str(site))
    assert result.returncode == 0, result.stderr
    found = [json.loads(path.read_text()) for path in sorted(output.glob("*/*/environment.json"))]
    expected = [{"my-compressor": "0.1.0"}, {}][: 2 if "-m" in WAYS[way] else 1]
    assert [facts["outside_packages"] for facts in found] == expected


def test_help_lists_the_methods_of_packages(tmp_path: Path) -> None:
    install_example(tmp_path)
    groups = command("--help", PYTHONPATH=str(tmp_path)).stdout.partition("Settings")[0]
    (listed,) = re.findall(r"^compressor: (.*(?:\n  .*)*)", groups, re.MULTILINE)
    assert "stride" in re.split(r",\s+", listed)


# Configs


def test_a_config_imports_only_what_it_names(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    marker = tmp_path / "marker"
    files = {"__init__.py": f"open({str(marker)!r}, 'w')\n", "stride.py": METHOD}
    files["conf/compressor/theirs.yaml"] = "_target_: theirs.stride.Stride\nevery: 3\n"
    install(site, "theirs", files)
    assert say(monkeypatch, capfd, *TINY, f"output={tmp_path / 'o'}") == (0, "")
    assert not marker.exists()
    assert say(monkeypatch, capfd, *TINY, "compressor=theirs", f"output={tmp_path / 'o'}") == (0, "")
    assert marker.exists()


def test_a_package_without_configs(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    (site / "lone.py").write_text(METHOD)
    write_metadata(site, "lone", "[total_error.compressors]\nx = lone\n")
    words = ("compressor=none", "compressor._target_=lone.Stride", "+compressor.every=3")
    assert say(monkeypatch, capfd, *TINY, *words, f"output={tmp_path / 'o'}") == (0, "")


def test_no_config_of_a_package_has_the_name_of_another_one(
    site: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    install(site, "theirs", {"conf/compressor/top_k.yaml": "_target_: theirs.x.X\n"})
    status, said = say(monkeypatch, capfd, *TINY)
    ours, their = ROOT / "conf/compressor/top_k.yaml", site / "theirs/conf/compressor/top_k.yaml"
    expected = f"error: there must be one config compressor/top_k, got {ours} and {their} of theirs 1.0\n"
    assert (status, said) == (1, expected)


# Targets


@cache
def composed() -> dict:
    return resolved(*TINY)


def with_target(group: str, target: str) -> dict:
    return composed() | {group: composed()[group] | {"_target_": target}}


def method_of(target: str) -> dict:
    config = deepcopy(composed())
    config["compressor"] = {"_target_": target, "every": 3}
    return config


def test_targets_are_those_of_declared_modules(site: Path) -> None:
    install(site, "theirs", {"stride.py": METHOD, "more/stride.py": METHOD, "_own.py": METHOD})
    install(site, "others", {"stride.py": METHOD}, group="feedback")
    (site / "undeclared.py").write_text(METHOD)
    for target in ("theirs.stride.Stride", "theirs.more.stride.Stride"):
        check_targets(method_of(target))
        check_factories(method_of(target))
        assert packages_of(method_of(target)) == {"theirs": "1.0"}
    nested = method_of("compressors.chain.Chain")
    nested["compressor"]["first"] = {"_target_": "others.stride.Stride"}
    bad = ["undeclared.Stride", "theirs", "theirs._own.Stride", "theirsx.stride.Stride", "torch.load"]
    for config in [*map(method_of, [*bad, "others.stride.Stride", "stride.Stride", "theirs."]), nested]:
        with pytest.raises(ValueError, match=r"^compressor\..*declares in total_error\.compressors, got "):
            check_targets(config)
    assert "undeclared" not in sys.modules


def test_every_group_has_entry_points_of_its_own(site: Path) -> None:
    groups = {"compressor": "compressors", "feedback": "feedback", "model": "models", "data": "data"}
    for group, name in groups.items():
        install(site, f"their_{group}", {"x.py": ""}, group=name)
        check_targets(with_target(group, f"their_{group}.x.make"))
    for group, other in pairwise((*groups, "compressor")):
        with pytest.raises(ValueError, match=rf"declares in total_error\.{groups[other]}, got "):
            check_targets(with_target(other, f"their_{group}.x.make"))
    with pytest.raises(ValueError, match=r"must be trainers\.settings\.NAME, a factory of this project, got"):
        check_targets(with_target("trainer", "their_model.x.make"))


IMPORTS = {
    "import nothing_of_that_name": r"ModuleNotFoundError: No module named '.*' \(bad\.py, line 1\)",
    "def x(:": r"SyntaxError: .*\(bad\.py, line 1\)",
    "\n1 / 0": r"ZeroDivisionError: division by zero \(bad\.py, line 2\)",
}


@pytest.mark.parametrize("text", IMPORTS)
def test_a_module_that_cannot_be_imported_ends_a_run_in_a_line(
    text: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    files = {"bad.py": text, "conf/compressor/bad.yaml": "_target_: theirs.bad.Bad\n"}
    install(site, "theirs", files)
    status, said = say(monkeypatch, capfd, *TINY, "compressor=bad", f"output={tmp_path / 'o'}")
    assert status == 1 and not (tmp_path / "o").exists()
    rule = r"error: compressor\._target_: theirs\.bad cannot be imported: "
    assert re.fullmatch(f"{rule}{IMPORTS[text]}\n", said)


# Declarations

BROKEN = {
    "x = theirs:Stride": "must name a module, as my_package or my_package.my_module",
    "x = compressors.top_k": "must not name compressors, which is a module of this project",
    "x = run": "must not name run, which is a module of this project",
    "x = no_such_module.below": "theirs 1.0 declares no_such_module.below in total_error.compressors, but",
}


@pytest.mark.parametrize("line", BROKEN)
def test_declarations_that_name_no_module_of_theirs(
    line: str, site: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    write_metadata(site, "theirs", f"[total_error.compressors]\n{line}\n")
    status, said = say(monkeypatch, capfd, *TINY)
    assert status == 1 and said.count("\n") == 1 and BROKEN[line] in said


@pytest.mark.slow
def test_the_example_installs_into_a_fresh_environment(tmp_path: Path) -> None:
    """Without a network: its dependencies are those of this environment."""
    source, venv, output = tmp_path / "source", tmp_path / "venv", tmp_path / "o"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    python = venv / "bin" / "python"

    def do(*words: object, status: int = 0) -> str:
        clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "DATA_DIR")}
        found = subprocess.run(
            [str(word) for word in words], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
        )
        assert found.returncode == status, found.stdout + found.stderr
        return found.stdout + found.stderr

    do(sys.executable, "-m", "venv", "--without-pip", venv)
    (place,) = venv.glob("lib/python*/site-packages")
    (place / "this_environment.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    words = (*TINY, "compressor=stride", f"output={output}")
    assert "Could not find 'compressor/stride'" in do(python, "run.py", *words, status=1)
    options = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    do(sys.executable, "-m", "pip", "--python", python, "install", *options, source)
    assert (place / "my_compressor/conf/compressor/stride.yaml").is_file()
    do(python, "run.py", *words)
    assert json.loads(read(output, "summary.json"))["status"] == "finished"
    assert json.loads(read(output, "environment.json"))["outside_packages"] == {"my-compressor": "0.1.0"}
    do(python, "-m", "pytest", EXAMPLE / "tests", "-p", "no:cacheprovider")
