"""Files for other tools: agreement with the Makefile, constraints.txt and pyproject.toml."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml
from longest_files import LONGEST

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_a_commit_is_checked_by_the_commands_of_make_test() -> None:
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    recipe = re.search(r"^test: .*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    commands = [line.strip() for line in recipe[1].splitlines()]
    assert [hook["entry"] for hook in hooks] == commands[: len(hooks)]
    assert "pytest" in commands[len(hooks)] and len(commands) == len(hooks) + 1


def test_the_workflow_runs_make_test_on_the_oldest_and_the_newest_python() -> None:
    (job,) = read(".github/workflows/test.yml")["jobs"].values()
    assert {"run": "make test"} in job["steps"]
    oldest, end = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    assert job["strategy"]["matrix"]["python"] == [f"3.{oldest}", f"3.{int(end) - 1}"]


def test_figures_take_less_than_four_megabytes() -> None:
    """All PNGs of results/pages in the repository; PDFs are made on demand."""
    assert sum(path.stat().st_size for path in (ROOT / "results/pages").glob("**/*.png")) < 4e6


def test_windows_is_answered_in_one_line() -> None:
    code = "import runpy, sys; sys.platform = 'win32'; runpy.run_path('run.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: Windows has no fork") and done.stderr.count("\n") == 1


def test_the_files_that_start_first_exist() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)
