"""Sweeps of studies: one name everywhere, one command that runs them, unchanged run ids."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, command
from configs import resolved
from sweep_files import is_every_method, name_of, params_of

from results.studies.catalogue import STUDIES, load
from sweeps.__main__ import files_of, main, studies
from trainers.identity.identity import identify
from trainers.launch.commands import Commands

# The id of the last job; with another id, finished runs would be repeated
RUNS = {
    "accordion/accordion": "a6cdb80c2c",
    "accordion/none_and_threshold": "0be4017987",
    "accordion/top_k": "e0bed2321e",
    "autolrs/rates_lstm": "3059d09d72",
    "autolrs/rates_resnet20": "6f4d9c8a41",
    "autolrs/schedules_lstm": "065fd6c27c",
    "autolrs/schedules_resnet20": "2f74da3755",
    "autolrs/search_lstm": "3d2fa10dc8",
    "autolrs/search_resnet20": "de79b05e60",
    "autolrs/steps_lstm": "45340ebccb",
    "autolrs/steps_resnet20": "d79401b1b0",
    "cifar10/anchor": "63a119ed92",
    "cifar10/five_seeds_threshold": "1af78f85b8",
    "cifar10/five_seeds_top_k": "3ba8fc4e78",
    "cifar10/five_seeds_top_k_tenth": "7c255f9cc9",
    "cifar10/longer_dense": "1213ed926e",
    "cifar10/longer_top_k": "911bd5fb6a",
    "cifar10/longer_threshold_matched": "7fb2c615c7",
    "cifar10/main_dense": "daef69312d",
    "cifar10/main_threshold_global": "0935c34d2b",
    "cifar10/main_threshold_matched": "0d09165d50",
    "cifar10/main_threshold_rule": "984602cbce",
    "cifar10/main_top_k": "41f35961d2",
    "cifar10/precision": "49f4805c3a",
    "cifar10/rates": "f475c7c331",
    "cifar10/rates_threshold_rule": "760b407b15",
    "cifar10/rates_top_k": "c7de55992d",
    "cifar10/workers": "348af8d953",
    "convex/heterogeneity": "dab4a67459",
    "convex/madelon_gd_star": "228cf8a425",
    "convex/madelon_sgd": "02cf087de8",
    "lambda_vs_k/dense": "f9e2d3bb83",
    "lambda_vs_k/densities": "b1df09fa78",
    "lambda_vs_k/madelon": "87f8f88f1f",
    "lambda_vs_k/matched": "771bdb53e1",
    "language/no_feedback": "c33a53bde5",
    "language/none": "6cac23e96e",
    "language/rates_no_feedback": "ea2497ef32",
    "language/rates_none": "860e2ffd41",
    "language/rates_top_k": "9ba8af9c44",
    "language/threshold": "b35e936aee",
    "language/top_k": "ffba88160a",
    "local/rates_averaging": "67985f0e4d",
    "local/rates_demo": "3b51f2e576",
    "local/rates_every_step": "bbcbb64bd8",
    "local/rates_momentum": "e6089a0c4b",
    "local/rates_threshold": "6233fd6c65",
    "local/rates_threshold_every_step": "154c12aa69",
    "local/seeds": "06b3fc1e78",
    "local/unlike": "75df91b3c8",
    "main/none_and_threshold": "dcebf1c106",
    "main/none_and_threshold_avx2": "3ee7748b1f",
    "main/top_k_and_random_block": "773deff04c",
    "main/top_k_and_random_block_avx2": "b4f481bcd7",
    "methods/rates_lstm": "c64fa96be0",
    "methods/rates_lstm_diana": "e9e1adc8b3",
    "methods/rates_lstm_ef21": "0a3f1af64c",
    "methods/rates_lstm_signsgd": "5950daf122",
    "methods/rates_madelon": "94441c6a29",
    "methods/rates_madelon_accordion": "b847825da0",
    "methods/rates_madelon_diana": "bd599a78df",
    "methods/rates_madelon_ef21": "83d8ad04e7",
    "methods/rates_madelon_signsgd": "b520cfc862",
    "methods/rates_resnet20": "d01bbea46e",
    "methods/rates_resnet20_accordion": "e5788b3958",
    "methods/rates_resnet20_diana": "a06bc7cd79",
    "methods/rates_resnet20_ef21": "4089a80358",
    "methods/rates_resnet20_signsgd": "cb226e7e41",
    "methods/seeds_lstm": "328d5e825e",
    "methods/seeds_lstm_diana": "a40b85b95f",
    "methods/seeds_lstm_ef21": "ea5e1912c3",
    "methods/seeds_madelon": "4e3ec3a2ba",
    "methods/seeds_madelon_accordion": "3fbbd0618f",
    "methods/seeds_madelon_diana": "8d6d46edf6",
    "methods/seeds_madelon_ef21": "bc807a5253",
    "methods/seeds_resnet20": "59a8c27501",
    "methods/seeds_resnet20_accordion": "42c612696a",
    "methods/seeds_resnet20_diana": "5a0a98f673",
    "methods/seeds_resnet20_ef21": "1d4f94725a",
    "regret/lstm": "8a09c758ff",
    "regret/madelon": "d8b4102082",
    "regret/madelon_accordion": "ccb33f80bd",
    "regret/resnet20": "b41cd4b70d",
    "regret/resnet20_accordion": "7497bee865",
    "small/lstm_matched": "613c9b0b4e",
    "small/presets": "2e4af09aa4",
    "three_parameters/dense": "aef30f235f",
    "three_parameters/random": "5fdaab16f6",
    "three_parameters/top_k": "7ab0b5a085",
    "topk_convergence/compressed": "42dc5c11bc",
    "topk_convergence/dense": "65cc3b7eba",
    "why/dense": "cd559c55d7",
    "why/density_gpt": "31bd1b8c3d",
    "why/density_gpt_rates": "6361f71617",
    "why/density_transformer": "a843ca37ce",
    "why/density_transformer_rates": "ffa7d4fe22",
    "why/equal_bytes": "952097edf7",
    "why/equal_bytes_threshold": "5f05a1c3ba",
    "why/feedback": "660be55922",
    "why/feedback_rates": "cff0e32f1b",
    "why/scopes": "1a51f57448",
    "wikitext2/dense": "a940a0eed6",
    "wikitext2/threshold_matched": "3ae2ba520f",
    "wikitext2/top_k": "8b3fb514aa",
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """Commands that the sweeps would start, with their environment; ``status=N`` sets the exit status."""
    found: list[tuple[list[str], dict[str, str]]] = []

    def run(self: Commands, words: Sequence[str], environment: dict[str, str], cwd: Path) -> Any:
        found.append((list(words[1:]), environment))
        given = [int(word.removeprefix("status=")) for word in words if word.startswith("status=")]
        if given and given[0] > 128:  # as if the sweep was stopped
            self.signals.append(given[0] - 128)
            raise KeyboardInterrupt
        return subprocess.CompletedProcess(words, given[0] if given else 0)

    monkeypatch.setattr(Commands, "run", run)
    return found


def test_a_study_has_one_name_everywhere() -> None:
    folders = {path.parent.name for path in (ROOT / "sweeps").glob("*/*.yaml")} - {"wandb", "paper"}
    pages = {path.parent.name for path in (ROOT / "results/pages").glob("*/*.md")} - {"gpu"}
    swept = {study for study in STUDIES if load(study).train is None}
    finished = pages - set(STUDIES)
    assert folders == swept | finished <= set(studies())
    listed = (ROOT / "docs/studies.md").read_text()
    assert all(f"| `{study}` |" in listed for study in finished)
    makefile = (ROOT / "Makefile").read_text()
    assert f"\nSTUDIES := {' '.join(STUDIES)}\n" in makefile
    for study in STUDIES:
        assert (ROOT / load(study).folder / f"{study}.md").is_file()
        assert f"\n#   {study:16} " in makefile
        assert f"`make {study}`" in listed


FIRST = {sweep.split("/")[0]: sweep for sweep in reversed(RUNS)}.values()  # the first sweep of each study


@pytest.mark.parametrize(
    "sweep", [pytest.param(sweep, marks=[] if sweep in FIRST else pytest.mark.slow) for sweep in RUNS]
)
def test_runs_keep_their_ids_and_lie_where_the_page_reads(sweep: str) -> None:
    name = sweep.split("/")[0]
    (path,) = [path for path in files_of(name) if name_of(path) == sweep]
    job = [
        f"{key}={'top_k' if is_every_method(values) else str(values).split(',')[-1]}"
        for key, values in params_of(path).items()
    ]
    if sweep.startswith("methods/seeds"):  # the rate is a result of earlier sweeps
        job.append("optimizer.lr=1")
    if name in ("cifar10", "wikitext2"):  # matched thresholds are results of pilot runs
        job += ["++budget.matched.one_percent=1", "++budget.matched.tenth_percent=1"]
    config = resolved(f"+sweeps={sweep}", *job)
    assert identify(config).id == RUNS[sweep]
    if name in STUDIES:
        study = load(name)
        read = (*(study.outputs or (name,)), *([study.option.output] if study.option else []))
        assert config["output"] in {f"outputs/{place}" for place in read}


def test_the_small_presets_are_all_there_are() -> None:
    (path,) = [path for path in files_of("small") if path.stem == "presets"]
    presets = sorted(path.stem for path in (ROOT / "conf/experiment/small").glob("*.yaml"))
    assert params_of(path)["experiment"].split(",") == [f"small/{preset}" for preset in presets]


def test_every_sweep_of_a_study_has_a_known_run() -> None:
    folders = {sweep.split("/")[0] for sweep in RUNS} | set(STUDIES)
    assert {name_of(file) for folder in folders for file in files_of(folder)} == set(RUNS)


def test_sweeps_of_a_study_run_in_order(started: list, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lambda_vs_k", "seed=0"]) == 0
    usual = ["tracker=none", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0"]
    assert [words[2] for words, _ in started] == [
        f"+sweeps=lambda_vs_k/{name}" for name in ("dense", "densities", "madelon", "matched")
    ]
    assert [words[3:] for words, _ in started] == [
        usual if "madelon" not in words[2] else ["data.download=true", *usual] for words, _ in started
    ]
    assert all(words[:2] == ["run.py", "-m"] for words, _ in started)
    said = capsys.readouterr().out
    assert said.count("== python run.py -m +sweeps=lambda_vs_k/") == 4
    assert said.splitlines()[-1].startswith("next: python -m results study lambda_vs_k (")


def test_a_launcher_and_a_tracker_of_ones_own_replace_the_usual_ones(started: list) -> None:
    own = ["tracker=wandb", "hydra/launcher=submitit_local"]
    assert main(["smoke", *own]) == 0
    assert [words for words, _ in started] == [["run.py", "-m", "+sweeps=smoke", *own]]


def test_variables_of_a_sweep_are_set_for_it_alone(started: list) -> None:
    assert main(["main"]) == 0
    loops = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    for words, variables in started:
        assert (loops.items() <= variables.items()) == words[2].endswith("_avx2")


def test_some_sweeps_of_a_study_are_named_by_a_pattern(started: list) -> None:
    assert main(["methods/rates_lstm*"]) == 0
    names = ["lstm", "lstm_diana", "lstm_ef21", "lstm_signsgd"]
    assert [words[2] for words, _ in started] == [f"+sweeps=methods/rates_{name}" for name in names]
    assert main(["methods/nothing*"]) == main(["wandb/*"]) == 2


@pytest.mark.parametrize(("options", "runs"), [([], 1), (["--keep-going"], 3)])
def test_a_failed_sweep_is_the_last_unless_asked_otherwise(
    started: list, options: list[str], runs: int
) -> None:
    assert main(["three_parameters", *options, "status=1"]) == 1
    assert len(started) == runs


def test_a_stopped_sweep_stops_the_others(started: list) -> None:
    assert main(["three_parameters", "--keep-going", "status=130"]) == 130
    assert len(started) == 1


STUDY = """
import os, sys
from trainers.launch.commands import Commands
with Commands() as commands:
    try:
        commands.run([sys.executable, "-c", {training!r}], dict(os.environ))
    except KeyboardInterrupt:
        sys.exit(commands.status)
"""
TRAINING = f"""
import os, signal, sys, time
sys.path.insert(0, {str(ROOT)!r})
from trainers.launch.stopping import stop_with_starter
stop_with_starter()
signal.signal(signal.{{awaited}}, lambda *_: (open({{file!r}}, "w").close(), os._exit(0)))
os.kill(os.getppid(), signal.{{sent}})
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("sent", "awaited", "status"),
    [("SIGINT", "SIGINT", 130), ("SIGTERM", "SIGTERM", 143), ("SIGKILL", "SIGTERM", -9)],
)
def test_a_signal_to_a_study_reaches_its_training(
    sent: str, awaited: str, status: int, tmp_path: Path
) -> None:
    """The training here ends with status 0, as if the signal came when it had finished."""
    reached = tmp_path / "reached"
    training = TRAINING.format(sent=sent, awaited=awaited, file=str(reached))
    words = [sys.executable, "-c", STUDY.format(training=training)]
    assert subprocess.run(words, cwd=ROOT, timeout=60, check=False).returncode == status
    deadline = time.monotonic() + 10
    while not reached.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert reached.exists()


def test_a_killed_command_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    words = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    with Commands() as commands, pytest.raises(KeyboardInterrupt):
        commands.run(words, dict(os.environ))
    said = capfd.readouterr().err
    assert said.endswith("was killed by SIGKILL\n") and said.count("\n") == 1 and commands.status == 137


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "a study is missing"), (["--keep-going"], "a study is missing"), (["x"], "no study 'x'")],
)
def test_another_name_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"error: {said}; there are {', '.join(studies())}\n"


@pytest.mark.slow
def test_sweeps_is_a_program_that_trains(tmp_path: Any) -> None:
    overrides = ["smoke", "seed=0", "compressor=none,top_k", "trainer.steps=1", "hydra/launcher=basic"]
    words = [sys.executable, "-m", "sweeps", *overrides, "isolate=false", f"output={tmp_path}"]
    first = command(launcher=words)
    assert first.returncode == 0, first.stderr
    finished, following = first.stdout.splitlines()[-2:]
    assert finished == "2 finished" and following.startswith(f"next: python -m results report {tmp_path} (")
    assert len(list(tmp_path.glob("*/*/summary.json"))) == 2
