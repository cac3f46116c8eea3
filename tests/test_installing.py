"""The package total_error: names, imports and the wheel, next to a user's folders with the same names."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path

import pytest
import yaml
from packages import install_example

import total_error
from compressors.named import FEEDBACKS, method, method_names
from data.torchvision_shim import install
from total_error._names import FOLDERS, MODULES, renamed
from trainers import names

ROOT = Path(__file__).parents[1]
HEAVY = {"hydra", "omegaconf", "wandb", "plotly", "pandas", "scipy", "sklearn", "pydantic", "yaml"}


def sources() -> list[Path]:
    """Python files of this repository that the wheel contains."""
    below = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [*below, *(ROOT / f"{name}.py" for name in MODULES), *sorted((ROOT / "total_error").glob("*.py"))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from data import x", "from total_error._lab.data import x"),
        ("def f():\n    from  run import x", "def f():\n    from  total_error._lab.run import x"),
        ("import trainers.step.explicit as s, os", "import total_error._lab.trainers.step.explicit as s, os"),
        ("import data.shim  # noqa", "import total_error._lab.data.shim  # noqa"),
        ("é = 1; from results.read import x", "é = 1; from total_error._lab.results.read import x"),
        ("from datasets import data", "from datasets import data"),
        ("from . import data\nx = 'from data import y'", "from . import data\nx = 'from data import y'"),
    ],
)
def test_imports_get_private_names(source: str, expected: str) -> None:
    assert renamed(source) == expected


def test_an_import_whose_name_is_used_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^line 1: write from \.\.\. import, or as, for trainers\.loop$"):
        renamed("import trainers.loop\ntrainers.loop.run()")


def test_no_source_of_the_wheel_imports_a_name_that_a_user_may_have() -> None:
    taken = {*FOLDERS, *MODULES}
    for path in sources():
        tree = ast.parse(renamed(path.read_text()))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not taken & {alias.name.partition(".")[0] for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module.partition(".")[0] not in taken, path


def test_private_names_are_those_of_the_folders() -> None:
    assert all(names.is_ours(name) for name in (*FOLDERS, *MODULES))
    assert names.full_name("compressors.top_k.TopK") == "compressors.top_k.TopK"
    outside = {path.parent.name for path in ROOT.glob("*/__init__.py")} - set(FOLDERS)
    assert outside == {"benchmarks", "total_error"}, "is it part of the wheel?"


def test_methods_and_feedback_have_the_names_of_their_configs() -> None:
    for path in sorted((ROOT / "conf/compressor").glob("*.yaml")):
        module, _, name = yaml.safe_load(path.read_text())["_target_"].rpartition(".")
        if module == f"compressors.{path.stem}":  # otherwise it is a preset of another method
            found = importlib.import_module(module)
            assert path.stem in method_names()
            assert importlib.import_module("compressors.named")._class_in(path.stem) is getattr(found, name)
    for path in sorted((ROOT / "conf/feedback").glob("*.yaml")):
        config = yaml.safe_load(path.read_text())
        own = FEEDBACKS[path.stem]
        factory = own.func if isinstance(own, partial) else own
        assert factory.__name__ == config["_target_"].rpartition(".")[2]
        settings = own.keywords if isinstance(own, partial) else {}
        assert {key: config[key] for key in settings} == settings
    assert len(FEEDBACKS) == len(list((ROOT / "conf/feedback").glob("*.yaml")))


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("nothing", {}, r"^compressor must be one of accordion, .*, got 'nothing'$"),
        ("topk", {}, r"got 'topk'; did you mean top_k\?$"),
        ("../run", {}, r"^compressor must be one of "),
        ("top_k", {"densty": 0.1}, r"^densty has no effect: the settings of top_k are density, schedule$"),
        (
            "hard_threshold",
            {"density": 0.1, "threshold": 0.2},
            "^density has no effect on hard_threshold with a threshold$",
        ),
        ("top_k", {"density": 2.0}, r"^TopK\.density must be in \(0, 1\], got 2\.0$"),
    ],
)
def test_wrong_methods_are_refused_in_a_line(name: str, settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        method(name, **settings)


def test_a_method_of_an_installed_package_has_the_name_of_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_example(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert {"stride", "top_k"} <= set(method_names())
    assert repr(total_error.method("stride", every=3)) == "Stride(every=3)"
    with pytest.raises(ValueError, match=r"^rate has no effect: the settings of stride are every$"):
        method("stride", rate=3)


SHADOWED = """
import sys
import total_error
made = total_error.method("top_k", density=0.5)
print(type(made).__module__)
try:
    import trainers
except RuntimeError as error:
    print(error)
"""


def strangers_folder(place: Path) -> Path:
    """A user's folder with packages of the same names as the laboratory's."""
    for name in (*FOLDERS, "conf"):
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text("raise RuntimeError('a user')\n")
    (place / "run.py").write_text("raise RuntimeError('a user')\n")
    return place


def test_in_the_checkout_the_names_are_its_own() -> None:
    from compressors.api import Codec
    from total_error import api

    assert api.Codec is Codec
    assert type(total_error.method("top_k", density=0.5)).__module__ == "compressors.top_k"


@pytest.mark.parametrize("wanted", ["torchvision.ops.nms", "transformers.Trainer"])
@pytest.mark.slow
def test_torchvision_is_imported_beside_a_torch_that_it_was_not_compiled_for(
    wanted: str, tmp_path: Path
) -> None:
    """By the copy of the shim in the environment of ``make run``, also if the shim itself comes later."""
    recipe = re.search(r"^\$\(STAMP\): .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None and "python data/torchvision_shim.py\n" in recipe[1]
    install(str(tmp_path))
    place, _, name = wanted.rpartition(".")
    code = f"import site; site.addsitedir({str(tmp_path)!r}); import data.torchvision_shim, torchvision\n"
    words = [sys.executable, "-c", f"{code}from {place} import {name}; print({name}.__name__)"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == f"{name}\n", done.stderr


SCRIPT = """
import torch, total_error, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(40, 40)
ddp_model = torch.nn.parallel.DistributedDataParallel(model)
state = total_error.compress(ddp_model, "top_k", density=0.1, feedback="ef")
ddp_model(torch.ones(1, 40)).square().sum().backward()
from total_error.testing import Contract, cases_of
print(type(state).__module__, int(state.metrics()["comm/values_bytes_total"]), Contract.__name__)
"""


@pytest.mark.parametrize(
    ("numba", "said"),
    [
        pytest.param("", "", marks=pytest.mark.slow),
        pytest.param(
            "raise ImportError('Numba needs NumPy 2.4 or less')",
            "cannot be imported: Numba needs NumPy 2.4 or less",
            marks=pytest.mark.slow,
        ),
        (None, "is not installed"),
    ],
)
def test_a_script_without_compiled_loops_says_so_in_a_line(
    numba: str | None, said: str, tmp_path: Path
) -> None:
    if numba:
        (tmp_path / "numba.py").write_text(numba)
    script = SCRIPT.partition("from total_error.testing")[0]
    missing = "import sys; sys.modules['numba'] = None\n" if numba is None else ""
    again = "total_error.compress(torch.nn.parallel.DistributedDataParallel(model), 'top_k', density=0.1)\n"
    heavy = HEAVY if said else HEAVY - {"scipy", "yaml"}  # numba imports these two
    light = f"import sys; print(sorted({heavy} & set(sys.modules)))\n"  # it needs torch and numpy alone
    words = [sys.executable, "-c", f"{missing}{script}{again}{light}print(state.step, state.density)"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    line = f"total_error: numba {said}, so compression has no compiled loops and is 2 to 3 times slower\n"
    assert (done.stdout, done.stderr) == ("[]\n1 0.1\n", line if said else "")


QUICK = ("experiment=quick", "model=mlp", "trainer.steps=3", "tracker=none", "workers=2")


@pytest.mark.slow
def test_a_wheel_in_a_fresh_environment(tmp_path: Path) -> None:
    """Without a network: its dependencies are those of this environment."""
    source, venv, own = tmp_path / "source", tmp_path / "venv", strangers_folder(tmp_path / "own")
    left_out = shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "__pycache__", "outputs", "*.egg-info"
    )
    shutil.copytree(ROOT, source, ignore=left_out, symlinks=True)
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "DATA_DIR")}

    def do(*words: object, folder: Path = own) -> str:
        found = subprocess.run(
            [str(word) for word in words], cwd=folder, env=clean, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    quiet = ("--quiet", "--no-index", "--no-deps")
    do(*pip, "wheel", *quiet, "--no-build-isolation", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    do(sys.executable, "-m", "venv", "--without-pip", venv)
    (place,) = venv.glob("lib/python*/site-packages")
    (place / "this_environment.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    do(*pip, "--python", venv / "bin/python", "install", *quiet, wheel)
    assert {path.name for path in place.iterdir() if "." not in path.name} == {"total_error"}

    python = venv / "bin" / "python"
    assert do(python, "-c", SHADOWED).splitlines()[1:] == ["a user"]
    said = do(python, "-c", SCRIPT).splitlines()[-1]
    assert said == f"total_error._lab.trainers.hooks.state {4 * (160 + 4)} Contract"
    (own / "typed.py").write_text("import total_error\nreveal_type(total_error.method_names())\n")
    mypy = (sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "mypy", "--follow-imports", "silent")
    assert "list[str]" in do(*mypy, "--python-executable", python, "typed.py").replace("builtins.", "")
    numbers = []
    commands = ((own, (venv / "bin/total-error",)), (ROOT, (sys.executable, "run.py")))
    for number, (folder, command) in enumerate(commands):
        output = tmp_path / f"output{number}"
        do(*command, *QUICK, f"output={output}", "processes=2", folder=folder)
        (summary,) = output.glob("*/*/summary.json")
        found = yaml.safe_load(summary.read_text())
        numbers.append([found[name] for name in ("id", "compression/total_error", "test/loss")])
    assert numbers[0] == numbers[1]
    do(venv / "bin/total-error", "-m", *QUICK, f"output={tmp_path / 'sweep'}", "seed=0,1")
    assert "top_k" in do(venv / "bin/total-error", "results", "table", tmp_path / "sweep")
