"""The environment record of a run: whether its code is that of a commit."""

import subprocess
from pathlib import Path

from trainers.files.working_tree import is_modified, untracked_code


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
