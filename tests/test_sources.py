"""The project's sources: no pickle, no evaluated text, no shell, no paths from archives, only https."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.unsafe_load"),
    *("yaml.full_load", "torch.hub.load", "torch.hub.load_state_dict_from_url"),
    *("torch.hub.download_url_to_file", "shutil.unpack_archive"),
}
FORBIDDEN_METHODS = {"extractall", "extract", "read_pickle", "to_pickle", "load_module", "exec_module"}
FORBIDDEN_METHODS |= {"urlretrieve"}
NEEDED = {  # a call, and its required argument
    "torch.load": ("weights_only", {"True"}),
    "np.load": ("allow_pickle", {"False"}),
    "numpy.load": ("allow_pickle", {"False"}),
    "yaml.load": ("Loader", {"_YAML", "_Loader", "yaml.SafeLoader", "yaml.CSafeLoader"}),
}


def faults(source: str) -> list[str]:
    """Unsafe calls of a source: pickles, eval, shells, extraction to paths of an archive."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [name for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        said = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in FORBIDDEN_CALLS or method in FORBIDDEN_METHODS:
            found.append(name)
        if name in NEEDED and said.get(NEEDED[name][0]) not in NEEDED[name][1]:
            found.append(name)
        if method == "from_pretrained" and said.get("use_safetensors") != "True":
            found.append(name)
        if said.get("shell") == "True" or said.get("trust_remote_code", "False") != "False":
            found.append(name)
    return found


def test_no_source_opens_a_door() -> None:
    packages = ["compressors", "data", "models", "trainers", "results", "sweeps", "benchmarks"]
    packages += ["examples", "total_error"]
    paths = [*ROOT.glob("*.py"), *(path for name in packages for path in (ROOT / name).glob("**/*.py"))]
    assert len(paths) > 90
    assert {str(path): faults(path.read_text()) for path in paths if faults(path.read_text())} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "eval('1')",
        "torch.load(p)",
        "torch.load(p, weights_only=False)",
        "np.load(p)",
        "np.load(p, allow_pickle=True)",
        "yaml.load(f, Loader=yaml.Loader)",
        "yaml.load(f)",
        "tarfile.open(p).extractall(q)",
        "pd.read_pickle(p)",
        "subprocess.run('x', shell=True)",
        "os.system('x')",
        "M.from_pretrained('x')",
        "M.from_pretrained('x', use_safetensors=True, trust_remote_code=True)",
    ],
)
def test_doors_are_seen(source: str) -> None:
    assert faults(source)


def test_addresses_are_https() -> None:
    for package in ("compressors", "data", "models", "trainers", "results", "sweeps"):
        for path in (ROOT / package).glob("**/*.py"):
            assert "http://" not in path.read_text(), path
