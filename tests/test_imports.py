"""Arrows point one way: run.py -> trainers -> compressors; models and data are leaves."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = {"compressors", "trainers", "models", "data", "run", "results", "benchmarks", "identity"}
MAY_IMPORT = {
    "compressors": {"compressors", "llvmlite", "numba", "numpy", "torch", "triton"},
    "trainers": {
        "trainers",
        "compressors",
        "filelock",
        "identity",
        "numpy",
        "pydantic",
        "rich",
        "safetensors",
        "scipy",
        "sklearn",
        "torch",
        "yaml",
    },
    "models": {
        "models",
        "numba",
        "numpy",
        "safetensors",
        "scipy",
        "torch",
        "torchvision",
        "transformers",
        "data.torchvision_shim",
        "data.checks",
    },
    "data": {"data", "numpy", "pandas", "PIL", "sklearn", "tokenizers", "torch", "torchvision"},
    "run.py": {"trainers", "compressors", "torch", "hydra", "omegaconf", "config_guard", "config_yaml"},
    "identity.py": set(),
    "config_guard.py": {"hydra", "omegaconf", "yaml", "config_yaml", "trainers.installed"},
    "config_yaml.py": {"omegaconf", "yaml"},
}
KIT = ("compressors", "testing")  # tests for others to import, which no part of a training does
KIT_MAY_IMPORT = MAY_IMPORT["compressors"] | {"hydra", "omegaconf", "pytest", "trainers"}
ONLY_IN = {
    "torch.distributed": {"trainers/communicator.py", "trainers/process_group.py", "trainers/ddp_hook.py"},
    "wandb": {"trainers/trackers.py"},
    "hydra": {"run.py", "config_guard.py"},
    "omegaconf": {"run.py", "config_guard.py", "config_yaml.py"},
}


def imports(path: Path) -> set[str]:
    """Modules that a file imports, at its top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def sources() -> list[Path]:
    return [
        p
        for part in MAY_IMPORT
        for p in ([ROOT / part] if part.endswith(".py") else sorted((ROOT / part).glob("**/*.py")))
    ]


def test_directions() -> None:
    for path in sources():
        parts = path.relative_to(ROOT).parts
        known = KIT_MAY_IMPORT if parts[:2] == KIT else MAY_IMPORT[parts[0]]
        for module in imports(path):
            top = module.split(".")[0]
            allowed = top in sys.stdlib_module_names or top in known or module in known
            assert allowed or module in ONLY_IN, f"{path.name} imports {module}"
            within = f"{module}.".startswith("compressors.testing.")
            assert not within or parts[:2] == KIT, f"{path.name} imports {module}"


def test_results_read_files_and_share_names_alone() -> None:
    """No trainer; of our packages only what a run is called and what its files must hold, without torch."""
    for path in sorted((ROOT / "results").glob("*.py")):
        modules = {m for m in imports(path) if m.split(".")[0] in OURS - {"results"}}
        assert modules <= {"identity", "trainers.run_files"}, path.name
    assert imports(ROOT / "identity.py") <= sys.stdlib_module_names | {"collections.abc"}
    ours, others = {"trainers.plain", "trainers.safe_files", "trainers.schemas"}, {"pydantic", "yaml"}
    for name in ("plain", "run_files", "safe_files", "schemas"):
        modules = imports(ROOT / "trainers" / f"{name}.py") - ours - others
        assert modules <= sys.stdlib_module_names | {"collections.abc"}, name


def test_packages_kept_in_one_place() -> None:
    for path in sources():
        name = str(path.relative_to(ROOT))
        if path.relative_to(ROOT).parts[:2] == KIT:
            continue
        for module in imports(path):
            for guarded, places in ONLY_IN.items():
                if module == guarded or module.startswith(guarded + "."):
                    assert name in places, f"{name} imports {module}"


def test_torchvision_comes_after_its_shim() -> None:
    for path in sources():
        modules = imports(path)
        if any(m.split(".")[0] in ("torchvision", "transformers") for m in modules):
            assert "data.torchvision_shim" in modules, path


def test_heavy_packages_are_imported_by_what_uses_them() -> None:
    """At the top of a file they would slow down every start."""
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
                for name in names:
                    assert name.split(".")[0] not in {
                        "wandb",
                        "transformers",
                        "tokenizers",
                        "sklearn",
                        "torchvision",
                    }, path
                    assert not (path.name == "run.py" and name.split(".")[0] in OURS | {"torch"}), name
