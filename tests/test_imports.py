"""Import rules: run.py -> trainers -> compressors; models and data import no trainer.

python tests/test_imports.py     # updates the diagram of packages in docs/design.md
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = {"compressors", "trainers", "models", "data", "run", "results", "benchmarks"}
PACKAGES = ("compressors", "trainers", "models", "data", "results")
DESIGN, DIAGRAM = ROOT / "docs/design.md", ("```mermaid\n", "```\n")
MAY_IMPORT = {  # by folder or file; the entry of a file replaces that of its folder
    "compressors": {"compressors", "llvmlite", "numba", "numpy", "torch", "triton"},
    "trainers": {
        "trainers",
        "compressors",
        "filelock",
        "numpy",
        "pydantic",
        "rich",
        "safetensors",
        "scipy",
        "sklearn",
        "torch",
        "yaml",
        "data.protocols",
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
    "data": {"data", "numpy", "pandas", "PIL", "scipy", "sklearn", "tokenizers", "torch", "torchvision"},
    "run.py": {"trainers", "hydra", "omegaconf"},
    "trainers/records/effects.py": set(),
    "trainers/records/identity.py": {"trainers.records.effects"},
    "results": {
        "results",
        "jinja2",
        "matplotlib",
        "numpy",
        "pandas",
        "PIL",
        "plotly",
        "pyarrow",
        "scipy",
        "trainers.launch.commands",
        "trainers.records.break_even",
        "trainers.records.files",
        "trainers.records.goals",
        "trainers.records.identity",
        "trainers.records.rates",
        "trainers.records.safe_files",
        "trainers.records.step_times",
        "trainers.records.working_tree",
        "wandb",
        "wandb_workspaces",
        "yaml",
    },
    "sweeps": {"trainers.launch.commands"},
    "total_error": {"total_error", "compressors", "trainers", "results.__main__", "run"},
    "trainers/config/guard.py": {
        "hydra",
        "omegaconf",
        "yaml",
        "trainers.config.help_page",
        "trainers.config.hydra_section",
        "trainers.config.installed",
        "trainers.config.nearest",
        "trainers.config.old_names",
        "trainers.config.sweep_jobs",
        "trainers.config.yaml_loader",
        "trainers.names",
    },
    "trainers/config/composition.py": {
        "hydra",
        "omegaconf",
        "trainers.config.checks",
        "trainers.config.errors",
        "trainers.config.guard",
        "trainers.config.sweep_jobs",
        "trainers.config.words",
        "trainers.config.yaml_loader",
        "trainers.records.identity",
        "trainers.records.plain",
        "yaml",
    },
    "trainers/config/help_page.py": {"hydra", "omegaconf", "yaml", "trainers.config.yaml_loader"},
    "trainers/config/hydra_section.py": {"hydra", "omegaconf"},
    "trainers/config/instantiation.py": {
        "hydra",
        "trainers.config.errors",
        "trainers.config.sweep_jobs",
        "trainers.names",
        "trainers.records.plain",
    },
    "trainers/config/sweep_jobs.py": {
        "hydra",
        "omegaconf",
        "trainers.records.sweep_plan",
        "trainers.records.effects",
        "trainers.records.plain",
    },
    "trainers/config/words.py": {
        "hydra",
        "trainers.config.api_keys",
        "trainers.config.guard",
        "trainers.records.effects",
    },
    "trainers/config/yaml_loader.py": {"omegaconf", "yaml"},
}
KIT = ("compressors", "testing")  # tests that other packages import; training code does not
KIT_MAY_IMPORT = MAY_IMPORT["compressors"] | {"hydra", "omegaconf", "pytest", "trainers"}
ONLY_IN = {
    "torch.distributed": {
        "trainers/comm/communicator.py",
        "trainers/comm/transfers.py",
        "trainers/launch/process_group.py",
        "trainers/comm/ddp_hook.py",
        "trainers/comm/fsdp_hook.py",
        "trainers/comm/hook_group.py",
    },
    "wandb": {"results/report/upload.py", "trainers/run/wandb_tracker.py"},
    "trackio": {"trainers/run/trackio_tracker.py"},
    "hydra": {
        "run.py",
        "trainers/config/composition.py",
        "trainers/config/guard.py",
        "trainers/config/help_page.py",
        "trainers/config/hydra_section.py",
        "trainers/config/instantiation.py",
        "trainers/config/sweep_jobs.py",
        "trainers/config/words.py",
    },
    "omegaconf": {
        "run.py",
        "trainers/config/composition.py",
        "trainers/config/guard.py",
        "trainers/config/help_page.py",
        "trainers/config/hydra_section.py",
        "trainers/config/sweep_jobs.py",
        "trainers/config/yaml_loader.py",
    },
}


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
    """The modules that a file may import."""
    parts = path.relative_to(ROOT).parts
    if parts[:2] == KIT:
        return KIT_MAY_IMPORT
    file = "/".join(parts)
    return MAY_IMPORT[file if file in MAY_IMPORT else parts[0]]


def arrows() -> dict[str, set[str]]:
    """Imports between packages at import time; a package's own files are separate from its sub-packages."""
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in sources()}
    modules |= {name.removesuffix(".__init__"): path for name, path in modules.items()}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        for node in ast.parse(path.read_text()).body:
            for module in imported_by(node):
                if module in modules and package_of(module) != package_of(name):
                    found.setdefault(package_of(name), set()).add(package_of(module))
    return found


def package_of(module: str) -> str:
    """The package of a module: a folder in a top-level folder, including its sub-packages."""
    is_package = (ROOT / module.replace(".", "/") / "__init__.py").exists()
    package = module if is_package else module.rpartition(".")[0] or module
    return ".".join(package.split(".")[:2])


def diagram() -> str:
    names = {name: f"{name}.py" if name == "run" else name for name in ("run", *PACKAGES)}
    lines = ["graph TD"]
    for package, others in sorted(arrows().items()):
        lines += [f"    {names.get(package, package)} --> {names.get(o, o)}" for o in sorted(others)]
    return "\n".join(lines) + "\n"


def parts_of_design() -> tuple[str, str, str]:
    before, begin, rest = DESIGN.read_text().partition(DIAGRAM[0])
    drawn, end, after = rest.partition(DIAGRAM[1])
    return before + begin, drawn, end + after


def test_directions() -> None:
    for path in sources():
        parts = path.relative_to(ROOT).parts
        known = known_to(path)
        for module in imports(path):
            top = module.split(".")[0]
            allowed = top in sys.stdlib_module_names or top in known or module in known
            assert allowed or module in ONLY_IN, f"{path.name} imports {module}"
            within = f"{module}.".startswith("compressors.testing.")
            is_kit = parts[:2] == KIT or parts == ("total_error", "testing.py")
            assert not within or is_kit, f"{path.name} imports {module}"


def test_results_read_files_and_share_names_alone() -> None:
    """results/ imports only trainers.records, which imports no torch, and what starts trainings."""
    for path in sorted((ROOT / "results").rglob("*.py")):
        modules = {m for m in imports(path) if m.split(".")[0] in OURS - {"results"}}
        modules -= {"trainers.launch.commands"}
        assert all(module.startswith("trainers.records.") for module in modules), path.name
    assert imports(ROOT / "trainers/records/effects.py") <= sys.stdlib_module_names | {"collections.abc"}
    others = {"pydantic", "yaml"}
    for path in (ROOT / "trainers/records").glob("*.py"):
        modules = {module for module in imports(path) if not module.startswith("trainers.records.")} - others
        assert modules <= sys.stdlib_module_names | {"collections.abc"}, path.name


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


def test_the_diagram_shows_the_arrows_that_there_are() -> None:
    assert parts_of_design()[1] == diagram(), "python tests/test_imports.py draws it anew"


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
    """At the top of a file, such an import would slow every start."""
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
                    is_ours = name.split(".")[0] in OURS | {"torch"} and not name.startswith(
                        "trainers.config"
                    )
                    assert not (path == ROOT / "run.py" and is_ours), name


if __name__ == "__main__":
    before, _, after = parts_of_design()
    DESIGN.write_text(before + diagram() + after)
