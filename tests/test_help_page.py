"""The page of --help: every setting with its explanation, aligned, in the terminal's width."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import command
from configs import CONF

from trainers.config.help_page import comments

OWN = [path for path in sorted(CONF.glob("*/*.yaml")) if path.parent.name not in ("experiment", "sweeps")]


def leaves(settings: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*before, name))
        elif not name.startswith("_"):
            yield (*before, name), value


@pytest.mark.parametrize(
    "path", [CONF / "config.yaml", *OWN], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_setting_is_explained(path: Path) -> None:
    """A setting whose value is a reference to another setting needs no explanation."""
    text = path.read_text()
    settings = yaml.safe_load(text)
    own = {key: value for key, value in settings.items() if key not in ("defaults", "hydra")}
    explained = comments(text, path.stem)
    for name in settings.get("defaults", ()):  # files of the same group on which this file is based
        if isinstance(name, str) and (base := path.with_name(f"{name}.yaml")).is_file():
            explained |= comments(base.read_text(), base.stem)
    bare = {".".join(key): value for key, value in leaves(own) if key not in explained}
    assert [key for key, value in bare.items() if not re.fullmatch(r"\$\{[a-z_.]+\}", str(value))] == []


def test_help_shows_what_the_chosen_files_say() -> None:
    width = 70
    done = command("compressor=qsgd", "diagnostics=xi", "experiment=quick", "--help", COLUMNS=str(width))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    start = lines.index("Settings (key=value), as composed") + 2
    page = lines[start : lines.index("", start)]
    assert max(map(len, [line for line in page if not line.startswith("name: ")])) <= width
    assert len({line.index(" # ") for line in page if " # " in line}) == 1
    text = " ".join(done.stdout.replace("#", " ").split())
    for said in (
        *comments((CONF / "compressor/qsgd.yaml").read_text()).values(),
        "batch_size: 32 samples per worker and step",  # its explanation and the preset's value
        "xi: {} ||C(mean p) - mean C(p)||",
        "workers: 4 n data-parallel workers",
    ):
        assert said in text, said
    assert "_target_" not in done.stdout
    assert "exception: " not in done.stdout  # a file that the config chooses, not the user
