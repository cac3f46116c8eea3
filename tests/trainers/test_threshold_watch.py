"""The warning about a threshold that sends nothing or everything."""

from pathlib import Path

import pytest
from command_line import command

SMALL = (
    "model=mlp",
    "model.hidden=[8]",
    "workers=2",
    "trainer.batch_size=64",
    "tracker=none",
    "feedback=none",
)


NOTHING = (
    "warning: lambda 100 sent nothing in steps 1 to 12 (density 0%); a lower compressor.threshold sends more"
)
EVERYTHING = (
    "warning: lambda 0 sent everything in steps 1 to 12 (density 100%); "
    "a higher compressor.threshold sends less"
)


@pytest.mark.parametrize(
    ("words", "warnings"),
    [
        (["trainer.epochs=2", "compressor.threshold=100"], [NOTHING]),
        (["trainer.epochs=2", "compressor.threshold=0"], [EVERYTHING]),
        (["trainer.epochs=2", "compressor.threshold=0.01"], []),
        (
            ["trainer.batch_size=null", "trainer.steps=5", "compressor.threshold=100"],
            [NOTHING.replace("12", "5")],
        ),
    ],
    ids=["nothing", "everything", "some", "epochs of one step"],
)
def test_a_threshold_that_sends_nothing_or_everything_is_said_once(
    words: list[str], warnings: list[str], tmp_path: Path
) -> None:
    done = command(*SMALL, *words, f"output={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "lambda" in line] == warnings
