"""Import rules: run.py -> trainers -> compressors; models and data import no trainer."""

import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = {"compressors", "contract", "trainers", "models", "data", "run", "results", "benchmarks"}
MAY_IMPORT = {  # by folder or file; the entry of a file replaces that of its folder
    "compressors": "compressors llvmlite numba numpy torch triton",
    "trainers": """trainers compressors filelock numpy pydantic rich safetensors scipy sklearn torch yaml
        data.protocols""",
    "models": """models numba numpy safetensors scipy torch torchvision transformers data.torchvision_shim
        data.checks""",
    "data": "data numpy pandas PIL scipy sklearn tokenizers torch torchvision",
    "run.py": "trainers hydra omegaconf",
    "trainers/identity/values.py": "",
    "trainers/identity/effects.py": "trainers.identity.values",
    "trainers/identity/identity.py": "trainers.identity.effects trainers.identity.values",
    "results": """results jinja2 matplotlib numpy pandas PIL plotly pyarrow scipy statsmodels wandb
        wandb_workspaces yaml
        trainers.files.atomic trainers.files.files trainers.files.goals trainers.files.working_tree
        trainers.identity.identity trainers.launch.commands trainers.launch.stopping
        trainers.network_model.break_even trainers.network_model.rates trainers.network_model.step_times""",
    "sweeps": "trainers.launch.commands",
    "total_error": "total_error compressors contract trainers results.__main__ run",
    "trainers/config": "hydra omegaconf yaml compressors trainers",
    "contract": "contract compressors trainers hydra omegaconf numpy pytest torch",
}
ONLY_IN = {
    "torch.distributed": {
        "contract/processes.py",
        "trainers/comm/communicator.py",
        "trainers/comm/groups.py",
        "trainers/comm/nodes.py",
        "trainers/comm/transfers.py",
        "trainers/launch/process_group.py",
        "trainers/hooks/ddp.py",
        "trainers/hooks/state.py",
        "trainers/hooks/fsdp.py",
        "trainers/hooks/backward_passes.py",
        "trainers/hooks/compress.py",
        "trainers/hooks/compress_fsdp.py",
        "trainers/hooks/shards.py",
        "trainers/hooks/group.py",
        "trainers/hooks/local_steps.py",
        "trainers/hooks/within.py",
    },
    "wandb": {"results/report/upload.py", "trainers/run/wandb_tracker.py"},
}


@cache
def imports(path: Path) -> set[str]:
    """Modules that a file imports, at its top or inside functions."""
    return {module for node in ast.walk(ast.parse(path.read_text())) for module in imported_by(node)}


def imported_by(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom) or node.module is None:
        return set()
    below = {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in below if (ROOT / f"{name.replace('.', '/')}.py").exists()} or {node.module}


def sources() -> list[Path]:
    files = [ROOT / part for part in MAY_IMPORT if part.endswith(".py")]
    return sorted({*files, *(p for part in MAY_IMPORT for p in (ROOT / part).glob("**/*.py"))})


def known_to(path: Path) -> set[str]:
    """The modules that a file may import: those of its own entry, or of the nearest folder with one."""
    parts = path.relative_to(ROOT).parts
    places = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return set(next(MAY_IMPORT[place] for place in places if place in MAY_IMPORT).split())


def test_directions() -> None:
    for path in sources():
        known = known_to(path)
        for module in imports(path):
            top = module.split(".")[0]
            allowed = top in sys.stdlib_module_names or top in known or module in known
            assert allowed or module in ONLY_IN, f"{path.name} imports {module}"


def test_results_import_no_torch() -> None:
    """Neither do the modules of the trainer that results/ shares: files, identity, the network model."""
    left = sorted((ROOT / "results").rglob("*.py"))
    seen: set[Path] = set()
    while left:
        path = left.pop()
        if path in seen:
            continue
        seen.add(path)
        modules = imports(path)
        assert "torch" not in {module.partition(".")[0] for module in modules}, path
        files = (ROOT / f"{module.replace('.', '/')}.py" for module in modules)
        left += [file for file in files if file.is_file()]


def test_no_module_waits_for_itself() -> None:
    """There is no import cycle, also not one through imports in functions or for type checkers."""
    paths = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in sources()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...] = ()) -> None:
        assert name not in above, f"{' -> '.join(above)} -> {name}"
        if name not in done:
            for module in {module for module in imports(paths[name]) if module in paths and module != name}:
                visit(module, (*above, name))
            done.add(name)

    for name in paths:
        visit(name)


def test_packages_kept_in_one_place() -> None:
    for path in sources():
        for guarded, places in ONLY_IN.items():
            found = [module for module in imports(path) if f"{module}.".startswith(f"{guarded}.")]
            assert not found or str(path.relative_to(ROOT)) in places, f"{path} imports {found}"


def test_torchvision_comes_after_its_shim() -> None:
    for path in sources():
        modules = imports(path)
        if any(m.split(".")[0] in ("torchvision", "transformers") for m in modules):
            assert "data.torchvision_shim" in modules, path


def test_heavy_packages_are_imported_by_what_uses_them() -> None:
    """At the top of a file, such an import would slow every start."""
    heavy = {"wandb", "transformers", "tokenizers", "sklearn", "torchvision"}
    for path in sources():
        for module in {m for node in ast.parse(path.read_text()).body for m in imported_by(node)}:
            top = module.split(".")[0]
            assert top not in heavy, path
            is_ours = top in OURS | {"torch"} and not module.startswith("trainers.config")
            assert not (path == ROOT / "run.py" and is_ours), module
