"""Damaged files of every format: read with a valid result, or refused in one line that names the file."""

from pathlib import Path

import pytest
import torch
from configs import resolved
from data_formats import FORMATS
from hydra.utils import get_method
from random_damage import DAMAGE, damage

from compressors.core.randomness import generator


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_data_file(name: str, kind: str, seeds: range, tmp_path: Path) -> None:
    settings = resolved(*FORMATS[name].words)["data"]
    factory = get_method(settings.pop("_target_"))
    for seed in seeds:
        root = tmp_path / str(seed)
        root.mkdir()
        FORMATS[name].write(root)
        paths = sorted(root.glob(FORMATS[name].files))
        path = paths[seed % len(paths)]
        damage(path, kind, seed)
        try:
            dataset = factory(**settings | {"root": str(root)})
            dataset.loader(2, range(2), 1, lambda *salt: generator(0, *salt)).batches(0)
            for split in dataset.held_out:
                dataset.held_out_batch(split, torch.tensor([0]))
        except (ValueError, OSError) as error:
            said = str(error)
            assert str(path) in said or str(path.parent) in said or " split" in said
            assert "\n" not in said and len(said) < 1000
        else:
            assert kind != "empty"
