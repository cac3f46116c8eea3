"""The docs against the code: files, settings and metrics that they name, commands that they show."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
from methods import named, reduce_once

from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]


@pytest.mark.parametrize("group", ["model", "data", "compressor"])
def test_readme_names_every_choice(group: str) -> None:
    for path in (ROOT / "conf" / group).glob("*.yaml"):
        assert f"`{path.stem}`" in README, f"{group}={path.stem}"


def test_the_reference_names_every_diagnostic() -> None:
    (named,) = re.findall(
        r"^\| `diagnostics=([a-z_,]+)` \|", (ROOT / "docs/reference.md").read_text(), re.MULTILINE
    )
    assert set(named.split(",")) == {path.stem for path in (ROOT / "conf/diagnostics").glob("*.yaml")}


def test_the_first_thing_is_the_two_commands() -> None:
    first = README.split("```")[1]
    assert "make run" in first
    assert "make test" in first


def test_links_between_pages_hold() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_metric_is_explained() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    sources = [*ROOT.glob("trainers/**/*.py"), ROOT / "data/tasks.py", ROOT / "models/logistic_l2.py"]
    for source in sources:
        for name in re.findall(
            r'"((?:compression|comm|train|test|time|convex|diagnostics)/[a-z_]+)', source.read_text()
        ):
            assert f"`{name}" in reference, name


def test_the_example_of_a_new_compressor_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file in CONTRIBUTING.md, as somebody would save it."""
    block = (ROOT / "CONTRIBUTING.md").read_text().split("```python\n")[1].split("```")[0]
    file = tmp_path / "stride.py"
    file.write_text("\n".join(line[3:] for line in block.splitlines()))
    spec = importlib.util.spec_from_file_location("stride", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "stride", module)
    spec.loader.exec_module(module)
    g = torch.randn(3, 20)
    reduced, _, communicator = reduce_once(ErrorFeedback(build_reducer(module.Stride(every=5), 20)), g)
    assert torch.equal(reduced.mean["a"].nonzero().squeeze(1), torch.arange(0, 20, 5))
    torch.testing.assert_close(reduced.mean["a"], (g - reduced.residual["a"]).mean(0))
    assert communicator.take_charges().tolist() == [[16, 0, 0, 0]] * 3
    assert named("top_k", {}).method().density == 0.1
