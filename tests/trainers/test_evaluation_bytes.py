"""Bytes of evaluations: every evaluation has the bytes sent so far."""

from pathlib import Path

from resuming import config_of, train

LINK_BYTES = "comm/link_bytes_sent_total"
WORDS = ("model=mlp", "workers=2", "trainer.batch_size=64", "trainer.steps=30", "compressor=hard_threshold")


def test_every_evaluation_has_its_bytes(tmp_path: Path) -> None:
    """They are in the record of the evaluation or of its step, and do not depend on ``trainer.log_every``."""
    found = []
    for every in (1, 7):
        records = train(config_of(tmp_path / str(every), *WORDS, f"trainer.log_every={every}"))["records"]
        of_steps = {row["step"]: row[LINK_BYTES] for row in records if "train/loss" in row}
        tests = [row for row in records if "test/accuracy" in row]
        assert all((row["step"] in of_steps) != (LINK_BYTES in row) for row in tests)
        found.append({row["step"]: row.get(LINK_BYTES, of_steps.get(row["step"])) for row in tests})
        assert any(LINK_BYTES in row for row in tests) == (every > 1)
    assert found[0] == found[1] and len(found[0]) > 2
    assert list(found[0].values()) == sorted(found[0].values())
