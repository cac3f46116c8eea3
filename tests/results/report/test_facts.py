"""Names of code versions in the report."""

import json
from pathlib import Path

from run_folders import write_run

from results.read.folders import read_runs
from results.report.facts import code_versions


def test_untracked_files_of_the_code_are_named(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    path = next(tmp_path.rglob("environment.json"))
    environment = json.loads(path.read_text())
    environment |= {"commit_is_modified": True, "untracked_code": ["compressors/mine.py"]}
    path.write_text(json.dumps(environment))
    (version,) = code_versions(read_runs([tmp_path]))
    assert version == f"{environment['commit'][:10]}*, with compressors/mine.py, which no commit holds"
