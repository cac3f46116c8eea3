"""ACCORDION and density schedules in whole trainings: sent elements, state, refusals."""

from pathlib import Path

import pytest
import torch
from configs import resolved
from resuming import config_of, crash_after, records, train

from trainers.run import training
from trainers.run.folder import RunFolder

SMALL = ("model=mlp", "model.hidden=[16]", "workers=4", "trainer.batch_size=90", "trainer.evaluate_every=100")
SMALL += ("schedule=constant", "trainer.steps=20")  # an epoch has 4 steps
ACCORDION = ("compressor=accordion", "budget.density=0.02", "compressor.k_high=0.2", "compressor.period=1")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_equal_densities_are_top_k(tmp_path: Path) -> None:
    """Equal records, diagnostics and weights, bit for bit, except for the bytes of norms."""
    watched = ("diagnostics=[xi,staleness,bound]", "diagnostics.every=3")
    settings = (*SMALL, *watched, "budget.density=0.05")
    top_k = train(config_of(tmp_path, *settings, "compressor=top_k"))
    same = ("compressor=accordion", "compressor.k_high=0.05", "compressor.period=2")
    accordion = train(config_of(tmp_path, *settings, *same))
    asked = {"comm/metadata_bytes_total", "comm/compression_ratio", "comm/bits_per_parameter"}
    asked |= {"comm/link_bytes_sent_largest", "comm/link_bytes_per_sample"}
    asked |= {
        f"comm/{name}{end}"
        for name in ("bytes_sent", "link_bytes_sent", "link_bytes_received")
        for end in ("", "_total")
    }
    for ours, theirs in zip(accordion["records"], top_k["records"], strict=True):
        assert {k: v for k, v in ours.items() if k not in asked} == {
            k: v for k, v in theirs.items() if k not in asked
        }
    # Norms of 4 layers are sent at epochs 1, 2 and 4 of 5.
    assert accordion["summary"]["comm/metadata_bytes_total"] == 3 * 4 * 8
    for name, tensor in top_k["tensors"].items():
        if not name.endswith(("ledger/total_bytes", "link_bytes")):
            assert torch.equal(accordion["tensors"][name], tensor), name


def test_the_bound_is_that_of_the_density_at_hand(tmp_path: Path) -> None:
    watched = ("diagnostics=[bound]", "diagnostics.every=1")
    step = ("compressor=top_k", "budget.density=0.1", "budget.schedule={kind:step,milestones:[2],factor:0.1}")
    for method in (ACCORDION, step):
        found = train(config_of(tmp_path, *SMALL, *watched, *method))["records"]
        steps = [record for record in found if "compression/error" in record]
        densities = {round(record["compression/density"], 3) for record in steps}
        assert len(densities) > 1, "it changes in this run"
        for record in steps:
            assert record["compression/error"] <= record["diagnostics/error_bound"] * (1 + 1e-9)


def test_a_checkpoint_holds_one_copy_and_another_number_of_workers_takes_it(tmp_path: Path) -> None:
    config = config_of(tmp_path / "four", *SMALL, *ACCORDION, "checkpoint.every_steps=5")
    with crash_after(15):
        training.train(config)
    folder = RunFolder(config)
    two = ("workers=2", "trainer.batch_size=180", f"resume={folder.path}", "checkpoint.redistribute=true")
    settings = [word for word in SMALL if word.split("=")[0] not in ("workers", "trainer.batch_size")]
    after = train(config_of(tmp_path / "two", *settings, *ACCORDION, *two))
    assert after["summary"]["step"] == 20
    looks = {name: t for name, t in after["tensors"].items() if "/looks/" in name}
    assert len(looks) == 4 and all(name.startswith("shared/reducer/") for name in looks)
    assert all(look[0] == 4 and look[2] > 0 for look in looks.values())
    assert [record["step"] for record in records(RunFolder(config))][-1] == 15


@pytest.mark.parametrize("method", ["none", "hard_threshold", "accordion"])
def test_a_method_without_a_density_takes_no_schedule(method: str) -> None:
    from trainers.config.checks import refuse_settings_without_effect

    config = resolved("model=mlp", f"compressor={method}", "budget.schedule=exponential")
    with pytest.raises(ValueError, match=r"budget.schedule has no effect with .*, whose density follows no"):
        refuse_settings_without_effect(config, {"budget.schedule"})
    refuse_settings_without_effect(resolved("compressor=top_k"), {"budget.schedule"})
    refuse_settings_without_effect(resolved("compressor=chain"), {"budget.schedule", "budget.density"})
