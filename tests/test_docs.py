"""README and docs: names, links, anchors, navigation, examples and commands."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from docs_commands import require_command
from docs_pages import LINK, PAGES, REFERENCE, RESULTS, ROOT, SITE, anchors, blocks, commands, entries, prose
from method_tables import TABLES, parts
from methods import named, reduce_once
from page_headers import parse

from benchmarks.gpu.sizes import SIZES
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from trainers.comm.links import all_reduce_bytes, gather_bytes
from trainers.network_model.break_even import StepCost, break_even

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("group", ["model", "data", "feedback"])
def test_the_page_of_choices_names_every_choice(group: str) -> None:
    choices = (ROOT / "docs" / "choices.md").read_text()
    for path in (ROOT / "conf" / group).glob("*.yaml"):
        assert f"`{path.stem}`" in choices, f"{group}={path.stem}"


def test_the_page_of_methods_has_a_row_for_each_feedback() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/methods.md").read_text(), re.MULTILINE)
    assert {path.stem for path in (ROOT / "conf/feedback").glob("*.yaml")} == set(rows)


@pytest.mark.parametrize("page", TABLES)
def test_a_table_of_methods_is_that_of_the_methods(page: str) -> None:
    assert parts(page)[1] == TABLES[page](), "python tests/helpers/method_tables.py writes it anew"


def test_the_guides_costs_on_a_gpu_are_those_measured() -> None:
    """Break-even of 8 workers: 8 (v_dense - v) / s, at 0.1 % of the entries."""
    parts = json.loads((ROOT / "results/pages/gpu/numbers.json").read_text())["parts"]
    rows = [row for part in ("step", "bandwidth") for row in parts[part]["rows"]]
    steps = {row["method"]: row for row in rows if (row.get("workers"), row.get("scope")) == (1, "layer")}
    calls = {(row["size"], row["work"]): row["ms"] for row in rows if "work" in row and "size" in row}
    step_ms = [
        steps[name]["reduce_ms"] + steps[name]["ledger_ms"]
        for name in ("hard_threshold, the rule at 0.1 %", "top_k 0.1 %")
    ]
    expected = [("11 M, the 62 parameters of ResNet-18", SIZES["11 M"], step_ms)]
    for label, size in SIZES.items():
        own = [calls[label, f"select, {what} 0.1 %"] for what in ("threshold", "Top-k")]
        expected.append((f"{label}, one vector", size, own))
    for label, size, (threshold, top_k) in expected:
        dense, sent = all_reduce_bytes(4 * size, 8), gather_bytes(8 * int(0.001 * size), 8)
        cells = [
            f"{ms:.2f} | {break_even(StepCost(ms / 1e3, 0, sent), StepCost(0, 0, dense)) / 1e9:,.0f}"
            for ms in (threshold, top_k)
        ]
        assert f"| {label} | {' | '.join(cells)} |" in (ROOT / "docs/guides/your_network.md").read_text()


def test_the_reference_names_every_diagnostic() -> None:
    (named,) = re.findall(
        r"^\| `diagnostics=([a-z_,]+)` \|", (ROOT / "docs/reference.md").read_text(), re.MULTILINE
    )
    assert set(named.split(",")) == {path.stem for path in (ROOT / "conf/diagnostics").glob("*.yaml")}


@pytest.mark.parametrize("name", ["design", "decisions", "gpu", "ledger", "reference", "glossary"])
def test_files_that_a_page_names_exist(name: str) -> None:
    folders = "|".join(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())
    text = (ROOT / f"docs/{name}.md").read_text()
    for path in re.findall(rf"(?<![\w/.-])(?:{folders}|tests|docs|conf|examples)/[\w/.-]*\w", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_hold(page: Path) -> None:
    for target in [*LINK.findall(prose(page)), *REFERENCE.findall(prose(page))]:
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target
        if page != ROOT / "README.md":  # the site has all other pages, and no folders
            assert linked.is_file(), target


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    named = [ROOT / uri if (ROOT / uri).exists() else ROOT / "docs" / uri for uri in entries(SITE["nav"])]
    assert len(named) == len(set(named))
    assert set(named) == {*PAGES, *RESULTS, ROOT / "CHANGELOG.md"} - {ROOT / "README.md"}


def test_numbers_of_the_claims_are_those_of_the_pages_they_link() -> None:
    text = (ROOT / "results/pages/claims.md").read_text()
    linked = {ROOT / "results/pages" / target for target in LINK.findall(text) if target[0] not in "#."}
    theirs = " ".join(path.read_text() for path in linked)
    found = re.findall(r"-?\d[\d.]* ± \d[\d.]*|[-+]\d[\d.]* \[[-+]\d[\d.]*, [-+]\d[\d.]*\]", text)
    assert found
    assert [number for number in found if number not in theirs] == []
    readme = re.findall(r"(\d[\d.]* \[[-+]\d[\d.]*, [-+]\d[\d.]*\])", README)
    assert readme
    assert [number for number in readme if number not in theirs] == []
    commits = {commit for path in linked for commit in parse(path.read_text()).commits}
    assert set(parse(text).commits) == commits


def test_the_paper_at_a_glance_has_presets_and_commands_that_exist_and_numbers_with_a_source() -> None:
    text = (ROOT / "docs/guides/reproduce_the_paper.md").read_text()
    rows = re.findall(r"^\| (.+) \|$", text.split("at a glance")[1].split("`make paper`")[0], re.MULTILINE)
    cells = [row.split(" | ") for row in rows[2:]]
    presets = {name for row in cells for name in re.findall(r"`(\w+/\w+)`", row[1])}
    assert {f"paper/{path.stem}" for path in ROOT.glob("conf/experiment/paper/*_*.yaml")} <= presets
    for name in presets:
        assert (ROOT / f"conf/experiment/{name}.yaml").is_file(), name
    for row in cells:
        require_command(row[2].strip("`"))
        if estimated := re.match(r"(\d+) runs, ([\d.]+) hours", row[3]):
            sweep = (ROOT / f"sweeps/{row[2].rpartition('=')[2].strip('`')}.yaml").read_text()
            assert f"# {estimated[1]} runs, " in sweep and f"# {estimated[2]} hours on a GPU" in sweep, row[2]
    number = re.compile(r"\d+\.\d+(?:e-\d+)?")
    told = {float(word) for word in number.findall((ROOT / "results/compare/paper.yaml").read_text())}
    assert {float(word) for row in cells for word in number.findall(row[4])} <= told
    convex = (ROOT / "results/pages/convex/convex.md").read_text()
    ours = [word for row in cells for word in number.findall(row[5])]
    assert len(ours) == 11 and [word for word in ours if f" {word} " not in convex] == []


@pytest.mark.slow
def test_the_leagues_interactive_page_has_the_numbers_of_its_tables_and_commands_of_today() -> None:
    """One command of each method is checked; the others differ in numbers and task."""
    table = (ROOT / "results/pages/league/league.md").read_text()
    tasks = json.loads((ROOT / "results/pages/league/league.json").read_text())["tasks"].values()
    settings = [one for told in tasks for one in told["settings"]]
    seeds = [one["command"].rpartition("seed=")[2].split(",") for one in settings]
    assert f"{sum(map(len, seeds))} trainings are compared" in table
    for one in settings:
        if f"| `{one['setting']}" in table:  # not if it meets no budget with the compared seeds
            assert f"| {one['spread']} |" in table, one
    local = (ROOT / "results/pages/local/local.md").read_text()
    (told,) = json.loads((ROOT / "results/pages/local/local.json").read_text())["tasks"].values()
    for one in told["settings"]:
        assert f"| {one['spread']} |" in local, one
    for command in {one["method"]: one["command"] for one in settings + told["settings"]}.values():
        require_command(command)


def test_every_metric_is_explained() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    sources = [path for folder in ("trainers", "data", "models") for path in ROOT.glob(f"{folder}/**/*.py")]
    for source in sources:
        for name in re.findall(
            r'"((?:compression|comm|train|test|time|convex|diagnostics)/[a-z_]+)', source.read_text()
        ):
            assert f"`{name}" in reference, name


def test_the_readme_counts_the_methods() -> None:
    configs = {path.stem for path in (ROOT / "conf/compressor").glob("*.yaml")}
    assert f"{len(configs - {'none'})} of them" in README


@pytest.mark.parametrize("page", ["README.md", "docs/guides/add_a_compressor.md"])
def test_the_example_of_a_new_compressor_works(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows a complete Python file that works when it is saved."""
    (block,) = [block for block in blocks(ROOT / page, "python") if "class Stride" in block]
    module = saved(block, "stride", tmp_path, monkeypatch)
    g = torch.randn(3, 20)
    reduced, _, communicator = reduce_once(ErrorFeedback(build_reducer(module.Stride(every=5), 20)), g)
    assert torch.equal(reduced.mean["a"].nonzero().squeeze(1), torch.arange(0, 20, 5))
    torch.testing.assert_close(reduced.mean["a"], (g - reduced.residual["a"]).mean(0))
    assert communicator.take_charges().tolist() == [[16, 0, 0, 0]] * 3
    assert named("top_k", {}).method().density == 0.1


@pytest.mark.parametrize("page", ["README.md", "docs/guides/own_script.md"])
def test_the_hook_in_an_own_script_trains(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in blocks(ROOT / page, "python") if "ddp_model = " in block]
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        source = f"from own_script import network\n\nmodel = network()\n{block}"
        module = saved(source, "script", tmp_path, monkeypatch)
        module.ddp_model(torch.ones(1, 32)).square().sum().backward()
        sent = torch.cat([p.grad.flatten() for p in module.model.parameters()])
    finally:
        dist.destroy_process_group()
    assert 0 < sent.count_nonzero() < sent.numel()


@pytest.mark.parametrize("command", sorted(commands()))
def test_a_command_of_the_docs_is_one(command: str) -> None:
    require_command(command)


WRONG = [
    *("nothing", "make nothing", "python benchmarks/nothing.py", "wandb sweep sweeps/wandb/nothing.yaml"),
    *("python run.py compressor.nothing=1", "torchrun run.py workers=0", "python run.py -m +sweeps=nothing"),
    *("python -m results nothing", "python -m results table outputs --nothing", "python -m sweeps nothing"),
]


@pytest.mark.parametrize("command", WRONG)
def test_a_wrong_command_is_seen(command: str) -> None:
    with pytest.raises(Exception, match=r"no(thing)? |Could not (find|override)|workers must be"):
        require_command(command)


def saved(source: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    file = folder / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
