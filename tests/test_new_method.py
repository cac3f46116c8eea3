"""A new method in this repository: its file and its yaml suffice."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT, blocks

LEFT_OUT = shutil.ignore_patterns(".*", "build", "outputs", "*.tar.xz", "*.egg-info")
PACKAGE = ROOT / "examples/my_compressor/my_compressor"
GUIDE = ROOT / "docs/guides/add_a_compressor.md"
TESTS = "compressors/test_contract.py compressors/test_refusing.py results/studies/test_league_training.py"
TESTS += " test_bad_configurations.py test_conf.py test_docs.py"
NAMED = "not float64 and (stride or exponential_k or every_setting or table_of)"  # float64 is compiled again


@pytest.mark.slow
def test_two_files_suffice(tmp_path: Path) -> None:
    """Stride and the guide's threshold in a copy of the repository, after the command for the tables."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
    yaml = (PACKAGE / "conf/compressor/stride.yaml").read_text().replace("my_compressor.", "compressors.")
    added = {"stride": ((PACKAGE / "stride.py").read_text(), yaml)}
    threshold = [
        text for words in ("python", "yaml") for text in blocks(GUIDE, words) if "ExponentialK" in text
    ]
    for name, (source, config) in (added | {"exponential_k": threshold}).items():
        (copy / f"compressors/{name}.py").write_text(source)
        (copy / f"conf/compressor/{name}.yaml").write_text(config)
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", NAMED]
    tests += [f"tests/{file}" for file in TESTS.split()]
    for words in (["tests/helpers/method_tables.py"], tests):
        command = [sys.executable, *words]
        ended = subprocess.run(
            command, cwd=copy, env={"PYTHONPATH": str(copy)}, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
