"""Reading and grouping of complete and broken run folders."""

from pathlib import Path

import pytest
from run_folders import write_run

from results.read.folders import compared_across, finished_runs, read_runs, with_numbers
from results.read.matching import by_key, by_method, by_setting, latest, warnings
from trainers.identity.identity import Origin, identify


def record(step: int, **metrics: float) -> dict[str, float]:
    return {"step": step, "epoch": step / 10, **{f"train/{name}": value for name, value in metrics.items()}}


def test_a_run_is_what_its_files_say(tmp_path: Path) -> None:
    records = [record(1, loss=0.1 + 0.2), {"step": 2, "test/accuracy": 1}, record(3, loss=5e-324)]
    path = write_run(tmp_path, compressor="hard_threshold", seed=7, records=records, commit="c0ffee" * 5)
    (run,) = read_runs([tmp_path])
    assert (run.path, run.seed, run.compressor, run.subject) == (path, 7, "hard_threshold", "mlp-digits")
    assert run.method == "hard_threshold, threshold 0.01"
    assert run.curve("train/loss").to_dict() == {1: 0.1 + 0.2, 3: 5e-324}  # bit-identical
    assert run.curve("test/accuracy").to_dict() == {2: 1.0}
    assert run.curve("no/such").empty
    assert (run.id, run.code, run.modified) == (identify(run.config).id, "c0ffeec0ff", False)


def test_a_failed_run_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = write_run(tmp_path, summary={"status": "failed", "error": "no file"})
    assert read_runs([tmp_path]) == []
    assert capsys.readouterr().err == f"left out {path}: its status is 'failed', no file\n"


def test_a_run_without_a_number_is_left_out_with_the_possible_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Digits have no perplexity, in any version of the code."""
    path = write_run(tmp_path)
    assert with_numbers(read_runs([tmp_path]), ["test/perplexity"]) == []
    why = "it has other data or diagnostics, or an earlier version of this project ran it"
    assert capsys.readouterr().err == f"left out {path}: its summary has no test/perplexity; {why}\n"


def test_integers_that_become_floats_later_are_one_column(tmp_path: Path) -> None:
    many = [record(i, loss=1) for i in range(50_000)]  # more than Arrow reads as one block
    write_run(tmp_path, records=[*many, record(50_000, loss=0.5)])
    (run,) = read_runs([tmp_path])
    assert run.curve("train/loss").iloc[[0, -1]].tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("summary.json", None, "it has no summary; the run is still going or was interrupted"),
        ("summary.json", '{"status": "fini', "summary.json is not JSON"),
        ("summary.json", "3", "summary.json: its content should be a valid dictionary"),
        ("config.yaml", None, "config.yaml is missing"),
        ("config.yaml", "seed: [", "while parsing"),
        ("config.yaml", "just words", "config.yaml: its content should be"),
    ],
)
def test_what_cannot_be_used_is_named_and_left_out(
    tmp_path: Path, name: str, content: str | None, said: str, capsys: pytest.CaptureFixture
) -> None:
    write_run(tmp_path, seed=0)
    path = write_run(tmp_path, seed=1)
    if content is None:
        (path / name).unlink()
    else:
        (path / name).write_text(content)
    seeds = [run.seed for run in read_runs([tmp_path])]
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert seeds == [0]
    assert printed.startswith(f"left out {path}: ") and said in printed


def test_only_run_folders_are_looked_into(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    outer = write_run(tmp_path)
    for inside in (outer / "wandb" / "files", outer / "copy", tmp_path / ".multirun", tmp_path / "wandb"):
        write_run(inside, seed=3)
    (tmp_path / "empty").mkdir()
    assert [run.path for run in read_runs([tmp_path])] == [outer]
    assert [run.path for run in read_runs([outer, tmp_path])] == [outer]  # one folder given twice
    assert read_runs([tmp_path / "empty"]) == []
    assert capsys.readouterr().err == ""
    with pytest.raises(FileNotFoundError, match="no folder"):
        read_runs([tmp_path / "not there"])


def test_of_duplicates_the_last_path_is_used_and_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    first = write_run(tmp_path / "a")
    last = write_run(tmp_path / "b")  # the same id
    runs = read_runs([tmp_path / "b", tmp_path])
    assert [run.path for run in latest(runs)] == [last]
    assert f"{first} is left out: {last} is the same run" in warnings(runs)
    assert [run.path for run in by_method(runs)["top_k, density 0.01"]] == [last]
    assert capsys.readouterr().err == f"two runs of top_k, density 0.01, seed 0: using {last}\n"


def test_a_step_recorded_twice_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path, records=[record(1, loss=3), record(2, loss=2), record(2, loss=1)])
    (run,) = read_runs([tmp_path])
    assert run.curve("train/loss").to_dict() == {1: 3, 2: 1}


def test_several_versions_of_the_code_are_said(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, commit="a" * 40)
    write_run(tmp_path, seed=1, commit="a" * 40, modified=True)
    write_run(tmp_path, seed=2, commit=None)
    runs = read_runs([tmp_path])
    said = "mlp-digits: runs of 3 versions of the code (*: modified): "
    assert warnings(runs) == [said + "aaaaaaaaaa (1), aaaaaaaaaa* (1), unknown (1)"]
    assert warnings([runs[i] for i in range(3) if runs[i].modified]) == [
        "mlp-digits: runs of modified code, which may differ: aaaaaaaaaa*",
        "mlp-digits: one seed only of top_k, density 0.01",
    ]


def test_methods_are_ordered_by_the_size_of_their_settings(tmp_path: Path) -> None:
    for threshold in (0.1, 1e-5, 0.02):
        write_run(tmp_path, compressor="hard_threshold", settings={"threshold": threshold})
    write_run(tmp_path, compressor="none")
    methods = list(by_method(read_runs([tmp_path])))
    assert methods == [*(f"hard_threshold, threshold {t}" for t in ("1e-05", "0.02", "0.1")), "none"]


def test_settings_compared_beside_the_method(tmp_path: Path) -> None:
    for scope in ("layer", "global"):
        for alpha in (0.1, 1.0):
            write_run(tmp_path, scope=scope, data={"partition": "dirichlet", "alpha": alpha})
    apart = read_runs([tmp_path])
    assert len({run.setting for run in apart}) == 4 and len({run.method for run in apart}) == 1
    together = compared_across(apart, "scope, data.alpha")
    assert len({run.setting for run in together}) == 1
    assert {run.method for run in together} == {
        f"top_k, density 0.01, scope {scope}, alpha {alpha}"
        for scope in ("layer", "global")
        for alpha in ("0.1", "1")
    }
    with pytest.raises(ValueError, match=r"no setting data\.beta"):
        compared_across(apart, "data.beta")
    write_run(tmp_path / "more", data={"beta": 1})
    assert len(compared_across([*apart, *read_runs([tmp_path / "more"])], "data.beta")) == 1


def test_two_kinds_of_feedback_are_two_methods(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    kinds = {"scale": "gradient"}, {"scale": "step"}, {"_target_": "compressors.feedback.EF21", "scale": None}
    for feedback in ({"_target_": "compressors.feedback.no_feedback"}, *kinds):
        write_run(tmp_path, feedback=feedback)
    runs = finished_runs([tmp_path])
    assert len(by_setting(runs)) == 1
    assert {method: len(of) for method, of in by_method(runs).items()} == {
        "top_k, density 0.01": 1,
        "top_k, density 0.01, feedback.scale step": 1,
        "top_k, density 0.01, feedback: compressors.feedback.EF21": 1,
        "top_k, density 0.01, no feedback": 1,
    }
    assert "is left out" not in capsys.readouterr().err


def test_a_run_of_older_code_is_the_run_that_it_would_be_today(tmp_path: Path) -> None:
    wire = {"_target_": "compressors.encoding.settings.Encoding", "indices": "plain", "values": "fp32"}
    newer = {"nonfinite": "stop", "reduction": "worker_order", "precision": "fp32", "bucket_megabytes": 5}
    write_run(tmp_path, trainer={"steps": 10, "epochs": 3})
    write_run(tmp_path, trainer={"steps": 10, "epochs": 4, **newer}, wire=wire, threads=2, seed=1)
    runs = read_runs([tmp_path])
    assert len(by_setting(runs)) == 1 and len(by_method(runs)) == 1
    assert {run.identity.id for run in runs}.isdisjoint(run.summary["id"] for run in runs)


def test_runs_that_would_be_one_row_and_are_not_the_same_are_refused(tmp_path: Path) -> None:
    for seeds in ((0, 0), (0, 1)):
        folder = tmp_path / str(seeds)
        one = write_run(folder / "a", seed=seeds[0], trainer={"steps": 10})
        two = write_run(folder / "b", seed=seeds[1], trainer={"steps": 20})
        with pytest.raises(ValueError, match="would be one row, ours, and differ: ") as raised:
            by_key(read_runs([folder]), lambda _: "ours")
        assert str(one) in str(raised.value) and str(two) in str(raised.value)
        assert (
            "trainer.steps 10 and 20" in str(raised.value) and "seed" not in str(raised.value).split(":")[-1]
        )


def test_a_run_from_another_runs_checkpoint_is_compared_with_its_like(tmp_path: Path) -> None:
    own = identify(read_runs([write_run(tmp_path / "fresh")])[0].config).id
    write_run(tmp_path / "own", resume="some/checkpoint", summary={"id": own})
    origin = Origin("c0ffee step-000000009 x", "f00d step-000000009")
    summary = {"origin": origin.checkpoint, "origin_group": origin.group}
    write_run(tmp_path / "other", resume="some/checkpoint", summary=summary)
    runs = {run.path.parents[1].name: run for run in read_runs([tmp_path])}
    assert runs["own"].id == runs["fresh"].id and runs["other"].identity.origin == origin
    assert [len(group) for group in by_setting(runs.values())] == [2, 1]
    summary = {"origin": "feed step-000000009 x", "origin_group": origin.group}
    write_run(tmp_path / "third", resume="other/checkpoint", summary=summary)
    with pytest.raises(ValueError, match="seed 0, and began at different checkpoints: compare them one"):
        by_method(read_runs([tmp_path / "other", tmp_path / "third"]))


@pytest.mark.parametrize(
    ("across", "said"),
    [
        ("threads", "threads has no effect except on the hardware used"),
        ("data.alpha", "data.alpha has no effect with data.partition=iid"),
        ("feedback.scale", "feedback.scale is already compared"),
    ],
)
def test_what_cannot_be_compared_beside_the_method(tmp_path: Path, across: str, said: str) -> None:
    write_run(tmp_path)
    with pytest.raises(ValueError, match=said):
        compared_across(read_runs([tmp_path]), across)


def test_finished_runs_without_the_numbers_are_not_called_unfinished(tmp_path: Path) -> None:
    write_run(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^no finished run in .* has no/such$"):
        finished_runs([tmp_path], needs=["no/such"])
