"""The code of a run: the digest and the files it covers, changed files, and finished runs of other code."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from configs import resolved
from resuming import config_of

from trainers.config.errors import ConfigError
from trainers.files.working_tree import PACKAGES, is_modified, untracked_code
from trainers.run import session
from trainers.run.code import digest_of_code
from trainers.run.folder import RunFolder

SMALL = ("model=mlp", "model.hidden=[4]", "workers=2", "trainer.steps=2", "trainer.batch_size=4")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in PACKAGES:
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "part.py").write_text(f"name = {name!r}")
    return tmp_path


def test_the_digest_follows_names_and_contents_of_python_files(root: Path) -> None:
    config = resolved()
    digests = [digest_of_code(config, root)]
    (root / "models" / "notes.txt").write_text("no code")
    (root / "models" / ".#part.py").symlink_to("user@host.1:1")  # Emacs's lock of a file that is being edited
    assert digest_of_code(config, root) == digests[0]
    (root / "models" / "new.py").touch()
    digests.append(digest_of_code(config, root))
    (root / "models" / "new.py").rename(root / "models" / "renamed.py")
    digests.append(digest_of_code(config, root))
    (root / "compressors" / "inner" / "part.py").write_text("name = 1")
    digests.append(digest_of_code(config, root))
    assert len(set(digests)) == 4


def test_packages_that_the_config_names_count(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "stranger").mkdir()
    code = outside / "stranger" / "__init__.py"
    code.write_text("one = 1")
    monkeypatch.syspath_prepend(str(outside))
    importlib.invalidate_caches()
    config = resolved()
    without = digest_of_code(config, root)
    config["compressor"] = {"_target_": "stranger.Method"}
    before = digest_of_code(config, root)
    code.write_text("one = 2")
    assert without != before != digest_of_code(config, root)
    assert "stranger" not in sys.modules  # found without an import


def test_a_finished_run_of_other_code_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, *SMALL)
    assert session.run(config)[0] == session.FINISHED
    assert session.run(config)[0] == session.SKIPPED
    assert "is finished already; its numbers:" in capsys.readouterr().out
    path = RunFolder(config).path / "environment.json"
    environment = json.loads(path.read_text())
    path.write_text(json.dumps(environment | {"code": "0" * 32}))
    assert session.run(config)[0] == session.SKIPPED
    said = "is finished already, with other code (resume=never runs it again); its numbers:"
    assert said in capsys.readouterr().out
    assert session.run(config | {"resume": "never"})[0] == session.FINISHED
    assert "resume=never: training again from the start" in capsys.readouterr().out
    assert json.loads(path.read_text())["code"] == environment["code"] == digest_of_code(config)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("device=cuda", "device=cuda: torch finds no CUDA device"),
        ("+checkpoint.color=1", "checkpoint.color has no effect"),
    ],
)
def test_settings_are_checked_where_a_run_exists(
    override: str, reason: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    output = tmp_path_factory.getbasetemp() / "checked"
    session.run(config_of(output, *SMALL))
    with pytest.raises(ConfigError, match=reason):
        session.run(config_of(output, *SMALL, override))


def test_pages_and_figures_are_no_code(tmp_path: Path) -> None:
    """A page that a command has just made must not mark the runs of the next command as modified."""
    names = ("trainers/a.py", "results/pages/a/a.md", "results/pages/a/a.png", "docs/papers/a.md")
    files = [tmp_path / name for name in names]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *arguments], check=True)
    code, page, figure, paper = files
    assert not is_modified(code.parent)
    page.write_text("after")
    paper.write_text("after")
    figure.unlink()
    assert not is_modified(code.parent)
    (tmp_path / "results" / "code.py").write_text("untracked")
    assert not is_modified(code.parent) and untracked_code(code.parent) == []
    (tmp_path / "compressors").mkdir()
    mine = tmp_path / "compressors" / "mine.py"
    mine.write_text("untracked")
    assert is_modified(code.parent) and untracked_code(code.parent) == ["compressors/mine.py"]
    mine.unlink()
    code.write_text("after")
    assert is_modified(code.parent)
