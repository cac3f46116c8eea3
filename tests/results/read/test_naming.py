"""Names of methods in tables and figures."""

import math
from pathlib import Path

import pytest
from run_folders import NUM_PARAMETERS, write_run

from results.read.folders import read_runs
from results.read.matching import by_method
from results.read.naming import asked, common_words, lambda_in_force, legends, names, part_name, short_names


def test_a_threshold_is_called_by_the_lambda_in_force_and_the_density_reached(tmp_path: Path) -> None:
    rule = {"threshold": None, "density": 0.01}
    write_run(
        tmp_path, compressor="hard_threshold", settings=rule, summary={"compression/density_mean": 0.0168}
    )
    write_run(tmp_path, compressor="hard_threshold", settings={"threshold": 0.3})
    write_run(tmp_path, summary={"compression/density_mean": 0.0101})
    write_run(tmp_path, settings={"density": 0.001}, summary={"compression/density_mean": 0.00123})
    write_run(tmp_path, compressor="none", summary={"compression/density_mean": 1.0})
    methods = by_method(read_runs([tmp_path]))
    threshold = 1 / (2 * math.sqrt(0.01 * NUM_PARAMETERS))
    assert [(asked(runs[0]), lambda_in_force(runs[0])) for runs in methods.values()] == [
        ("density 1 %", pytest.approx(threshold)),
        ("lambda 0.3", 0.3),
        ("-", None),
        ("density 0.1 %", None),
        ("density 1 %", None),
    ]
    assert list(names(methods).values()) == [
        "hard_threshold, lambda 0.1581",
        "hard_threshold, lambda 0.3",
        "none",
        "top_k, density 0.001",
        "top_k, density 0.01",
    ]
    shown = {name: methods[key] for key, name in short_names(methods).items()}
    assert list(legends(shown).values()) == [
        "hard_threshold, lambda 0.1581 (1.68 % sent)",
        "hard_threshold, lambda 0.3 (1 % sent)",
        "none",
        "top_k, density 0.1 % (0.123 % sent)",
        "top_k, density 1 %",
    ]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("compressors.top_k.TopK", "top_k"),
        ("compressors.clt_k.CLTK", "clt_k"),
        ("compressors.feedback.EF21", "ef21"),
        ("compressors.feedback.MomentumCorrection", "momentum_correction"),
        ("my_package.methods.stride.Stride", "stride"),
        ("models.mlp.mlp", "mlp"),
    ],
)
def test_a_part_is_called_as_on_the_command_line(target: str, name: str) -> None:
    assert part_name(target) == name


def test_settings_of_all_methods_of_a_figure_are_left_out_of_their_names(tmp_path: Path) -> None:
    """The figure's facts list them. Names keep numbers, and settings of only some of the methods."""
    step = {"feedback": {"_target_": "compressors.feedback.ErrorFeedback", "scale": "step"}}
    for settings in ({"density": 0.01}, {"density": 0.1}, {"density": 0.1, "scope": "layer"}):
        write_run(tmp_path, settings=settings, **step)
    write_run(tmp_path, compressor="none")
    methods = by_method(read_runs([tmp_path]))
    assert common_words(methods) == ["feedback.scale step"]
    assert not any("scale" in name for name in short_names(methods).values())
    assert len(set(short_names(methods).values())) == 4
    one = dict([list(methods.items())[-1]])
    assert common_words(one) == [] and "scale" in next(iter(short_names(one).values()))
