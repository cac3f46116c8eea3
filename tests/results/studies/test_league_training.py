"""The league: knobs that meet budgets, and the order of trainings."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from configs import resolved
from knobs_here import answer_here, entry_of
from methods import cases

from compressors.parts.bins import LONGEST
from results.compare import knobs
from results.compare.knobs import Knob, UnreachableError
from results.studies.league import search
from results.studies.league.methods import FEEDBACKS, Entry, method_names
from results.studies.league.tasks import FURTHER_RATES, SHARES, TASKS, TUNING_SEED
from results.studies.league.trials import Outcome, TrainingError, Trial, trial_of
from trainers.config.checks import check

DENSE = Outcome(1e8, 0.9, 1000, 1.0)
SEEDS = range(5)


@pytest.fixture(autouse=True)
def knobs_are_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "answer_of", answer_here)


@pytest.fixture(autouse=True)
def all_methods_try_further_rates_on_madelon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "madelon", replace(TASKS["madelon"], seeds=len(SEEDS), extended=None))


def knob_of(name: str) -> Knob:
    knob = entry_of(name).knob
    assert knob is not None
    return knob


class Trained:
    """Stand-in for trainings that computes their outcomes by a rule."""

    def __init__(self, sent: Any, fails: Any = lambda trial: False) -> None:
        self.sent, self.fails = sent, fails
        self.found: dict[Trial, Outcome] = {}
        self.report = [].append

    def __call__(self, entry: Entry, trial: Trial) -> Outcome:
        if self.fails(trial):
            raise TrainingError(str(trial))
        value = float(trial.knob.split()[0].partition("=")[2]) if trial.knob else 0.0
        best = TASKS[trial.task].rate
        quality = abs(trial.rate / best - 1) + trial.seed / 1000
        self.found[trial] = Outcome(self.sent(value), quality, 1000, 1.0)
        return self.found[trial]

    def of_seed(self, seed: int) -> list[Trial]:
        return [trial for trial in self.found if trial.seed == seed]


ONE_OF_EACH_KNOB = ("none", "top_k", "hard_threshold", "qsgd", "powersgd", "accordion", "two_way")


@pytest.mark.parametrize(
    ("task", "name"),
    [
        *(
            pytest.param("madelon", name, marks=[pytest.mark.slow] * (name not in ONE_OF_EACH_KNOB))
            for name in method_names()
        ),
        *((task, "dgc") for task in TASKS if "dgc" not in TASKS[task].excluded),
    ],
)
def test_methods_compose_on_every_task(task: str, name: str) -> None:
    entry = entry_of(name)
    case = next(case for case in cases() if case.name == FEEDBACKS.get(name, name))
    assert (entry.knob is None) == (case.method().knob is None)
    knob = entry.knob.overrides(entry.knob.first_value(100, 1_000_000)) if entry.knob else ""
    trial = Trial(task, name, 100 if knob else None, knob, TASKS[task].rate, TUNING_SEED)
    words = [word for word in trial.overrides(entry, Path("out")) if not word.startswith("output=")]
    config = resolved(*words)
    check(config)
    assert trial_of(config) == trial


def test_a_density_meets_its_budget_within_the_tolerance() -> None:
    wanted = 1e8 / 100
    value = knob_of("top_k").match(
        lambda density: 3e8 * density + 1e4, wanted, knob_of("top_k").first_value(100, 0)
    )
    assert abs((3e8 * value + 1e4) / wanted - 1) < 0.05


def test_a_threshold_meets_its_budget_where_its_bytes_fall_faster_than_by_the_rule() -> None:
    wanted = 1e6
    value = knob_of("hard_threshold").match(lambda threshold: 1e2 / threshold**3, wanted, 1.0)
    assert 0.95 < 1e2 / value**3 / wanted < 1.05


def test_a_method_with_a_floor_stops_after_the_second_equal_pilot() -> None:
    tried = []

    def sent(density: float) -> float:
        tried.append(density)
        return 5e6

    with pytest.raises(UnreachableError):
        knob_of("top_k").match(sent, 1e6, 0.01)
    assert len(tried) == 2


def test_equal_bytes_at_close_densities_do_not_end_the_search() -> None:
    """As in a layer of 500 entries, of which 1 or 2 are sent."""
    assert knob_of("top_k").match(lambda density: 1e5 * math.ceil(500 * density), 1.4e5, 0.0038) <= 0.002


def test_a_method_that_sends_too_little_at_its_highest_density_gets_the_best_of_those_tried() -> None:
    tried: dict[float, float] = {}

    def sent(density: float) -> float:
        assert density <= 1
        tried[density] = 1e4 * (1 + density)
        return tried[density]

    assert knob_of("top_k").match(sent, 1e6, 0.01) == 1.0 and len(tried) == 3


def test_bins_are_at_most_the_longest() -> None:
    tried = []

    def sent(entries: float) -> float:
        tried.append(entries)
        return 1e9 / entries**0.5

    with pytest.raises(UnreachableError):
        knob_of("adacomp").match(sent, 1e6, 500.0)
    assert max(tried) * knob_of("adacomp").factors["compressor.other_bin"] == LONGEST


def test_the_largest_rank_that_fits_is_taken() -> None:
    tried = []

    def sent(rank: float) -> float:
        tried.append(rank)
        return 1e5 + 2e5 * rank

    assert knob_of("powersgd").match(sent, 1e6, 1.0) == 4
    assert tried == [1, 3, 4, 5]


def test_bits_that_are_too_many_end_the_search() -> None:
    with pytest.raises(UnreachableError):
        knob_of("qsgd").match(lambda bits: 1e6 * bits, 1e6, 2.0)


def test_a_method_gets_pilots_three_rates_and_all_seeds_at_every_budget() -> None:
    train = Trained(lambda density: 3e8 * density)
    search.train_method("madelon", entry_of("top_k"), DENSE, train)
    for share in SHARES:
        own = [trial for trial in train.found if trial.share == share]
        compared = [trial for trial in own if trial.seed != TUNING_SEED]
        assert [trial.seed for trial in compared] == list(SEEDS)
        assert {trial.rate for trial in compared} == {TASKS["madelon"].rate}  # the best by quality
        assert {trial.rate for trial in own} == {3.333e-9, 1e-8, 3e-8}
        (knob,) = {trial.knob for trial in compared}
        assert abs(train.sent(float(knob.partition("=")[2])) * share / 1e8 - 1) < 0.06


def test_smaller_budgets_are_not_tried_after_one_that_is_not_met() -> None:
    train = Trained(lambda rank: 1e8 / 60 * rank)
    search.train_method("madelon", entry_of("powersgd"), DENSE, train)
    assert {trial.share for trial in train.found if trial.seed == TUNING_SEED} == {20, 100}
    assert {trial.share for trial in train.found if trial.seed != TUNING_SEED} == {20}


def test_a_rate_that_fails_is_not_chosen_and_pilots_go_on_at_the_lowest() -> None:
    train = Trained(lambda density: 3e8 * density, fails=lambda trial: trial.rate > 3.4e-9)
    search.train_method("madelon", entry_of("top_k"), DENSE, train)
    assert {trial.rate for trial in train.of_seed(0)} == {3.333e-9}


def test_a_rate_that_cannot_meet_the_budget_gives_way_to_the_next() -> None:
    """The bytes do not depend on the density at the rate with the best quality."""

    class AtRates(Trained):
        def __call__(self, entry: Entry, trial: Trial) -> Outcome:
            found = super().__call__(entry, trial)
            is_lowest = trial.rate < 3.4e-9
            self.found[trial] = found._replace(
                sent=5e7 if is_lowest else found.sent, quality=0.0 if is_lowest else found.quality
            )
            return self.found[trial]

    train = AtRates(lambda density: 3e8 * density)
    search.train_method("madelon", entry_of("redsync"), DENSE, train)
    assert {trial.rate for trial in train.of_seed(0)} == {1e-8}
    assert {trial.share for trial in train.of_seed(0)} == set(SHARES)


class WithBest(Trained):
    """The best rate is ``best`` instead of the task's."""

    best = 1.0

    def __call__(self, entry: Entry, trial: Trial) -> Outcome:
        found = super().__call__(entry, trial)
        self.found[trial] = found._replace(quality=abs(math.log(trial.rate / self.best)))
        return self.found[trial]


@pytest.mark.parametrize(
    ("best", "fails_at", "rates", "chosen"),
    [
        (9e-8, math.inf, [3.333e-9, 1e-8, 3e-8, 9e-8, 2.7e-7], 9e-8),
        (9e-8, 9e-8, [3.333e-9, 1e-8, 3e-8], 3e-8),
        (1e-12, math.inf, [1.234e-10, 3.703e-10, 1.111e-9, 3.333e-9, 1e-8, 3e-8], 1.234e-10),
    ],
)
def test_the_rates_go_on_while_the_best_is_at_an_end(
    best: float, fails_at: float, rates: list[float], chosen: float
) -> None:
    train = WithBest(lambda density: 3e8 * density, fails=lambda trial: trial.rate >= fails_at)
    train.best = best
    search.train_method("madelon", entry_of("top_k"), DENSE, train)
    assert sorted({trial.rate for trial in train.of_seed(TUNING_SEED)}) == rates
    assert {trial.rate for trial in train.of_seed(0)} == {chosen}
    assert len(rates) <= 3 + FURTHER_RATES
    (first, *_) = train.of_seed(0)
    assert first.has_end_rate(train.found) == (chosen in (rates[0], rates[-1]))


def test_some_tasks_have_further_rates_for_three_methods_only() -> None:
    train = WithBest(lambda density: 3e8 * density)
    train.best = 1e3
    for name in ("top_k", "random_k"):
        search.train_method("wikitext2", entry_of(name), DENSE, train)
    highest = {
        name: max(trial.rate for trial in train.found if trial.method == name)
        for name in ("top_k", "random_k")
    }
    assert highest == {"top_k": 405.0, "random_k": 15.0}


@pytest.mark.parametrize(("sent", "trainings"), [(1e8 / 32, 8), (1e8 / 4, 1)])
def test_a_method_without_a_knob_is_trained_if_it_meets_any_budget(sent: float, trainings: int) -> None:
    train = Trained(lambda _: sent)
    search.train_method("madelon", entry_of("ef_sign"), DENSE, train)
    assert len(train.found) == trainings
    assert all(trial.share is None for trial in train.found)


def test_a_rate_of_signsgd_is_its_own() -> None:
    train = Trained(lambda _: 1e8 / 32)
    search.train_method("madelon", entry_of("signsgd"), DENSE, train)
    assert {trial.rate for trial in train.found} >= {3.333e-07, 1e-06, 3e-06}


def test_a_momentum_of_a_methods_own_changes_its_rates() -> None:
    """A constant gradient moves the parameters by lr / (1 - m) at every step."""
    assert TASKS["madelon"].rates("dgc") == [3.333e-10, 1e-9, 3e-9]  # 0.9 instead of no momentum
    assert TASKS["cifar10"].rates("dgc") == TASKS["cifar10"].rates("top_k")  # both have 0.9
    assert TASKS["madelon"].rates("ef21_sgdm") == TASKS["madelon"].rates("top_k")  # (1 - m) g is added
    assert TASKS["cifar10"].rates("ef21_sgdm") == [0.03333, 0.1, 0.3]


def test_a_divergence_after_pilots_gives_way_to_the_next_rate() -> None:
    """The lowest rate is the best, but training diverges there with another density."""

    class AtRates(Trained):
        def __call__(self, entry: Entry, trial: Trial) -> Outcome:
            outcome = super().__call__(entry, trial)
            if trial.rate == 3.333e-9:
                outcome = outcome._replace(sent=2 * outcome.sent, quality=-1.0)
            return outcome

    first: list[str] = []

    def fails(trial: Trial) -> bool:
        if trial.rate == 3.333e-9:
            first.append(trial.knob)
            return trial.knob != first[0]
        return False

    train = AtRates(lambda threshold: 1e2 / threshold**2, fails)
    search.train_method("madelon", entry_of("hard_threshold"), DENSE, train)
    assert {trial.share for trial in train.found if trial.seed == 0} == set(SHARES)


def test_the_baseline_comes_first() -> None:
    train = Trained(lambda density: 3e8 * density if density else 1e8)
    search.train_methods(["madelon"], ["top_k"], train, 1)
    assert next(iter(train.found)).method == "none" and len({trial.method for trial in train.found}) == 2


def test_a_refused_method_does_not_stop_the_others() -> None:
    class Refusing(Trained):
        def __call__(self, entry: Entry, trial: Trial) -> Outcome:
            if entry.name == "random_k":
                raise ValueError("no such density")
            return super().__call__(entry, trial)

    train = Refusing(lambda density: 3e8 * density if density else 1e8)
    with pytest.raises(ValueError, match="madelon random_k: no such density"):
        search.train_methods(["madelon"], ["random_k", "top_k"], train, 1)
    assert {trial.seed for trial in train.found if trial.method == "top_k"} == {*SEEDS, TUNING_SEED}


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("top_k", {"budget.density": 1}),
        ("accordion", {"budget.density": 1, "compressor.k_high": 10}),
        ("chain", {"budget.density": 1}),  # of Top-k, with QSGD after it
        ("cocktail", {"compressor.second.first.density": 1}),
        ("strom", {"budget.threshold": 1}),
        ("two_way", {"compressor.up.bits": 1, "compressor.down.bits": 1}),
        ("diana", {"compressor.bits": 1}),  # of its compressor
    ],
)
def test_a_knob_is_the_setting_that_run_py_takes(name: str, factors: dict[str, float]) -> None:
    assert knob_of(name).factors == factors


@pytest.mark.parametrize("sign", [1, -1])
def test_a_named_knob_finds_its_direction_and_meets_all_budgets(sign: int) -> None:
    """``period`` of a threshold is whole and not declared; a method with a declared knob keeps its slope."""
    entry = entry_of("reused_threshold", "compressor.period")
    assert entry.knob is not None and (entry.knob.value, entry.knob.slope, entry.knob.is_whole) == (
        32,
        0,
        True,
    )
    train = Trained(lambda period: 1e6 * period if sign > 0 else 1e8 / period)
    search.train_method("madelon", entry, DENSE, train)
    compared = {trial.share: int(trial.knob.partition("=")[2]) for trial in train.of_seed(0)}
    wanted = {20: 5, 100: 1} if sign > 0 else {20: 20, 100: 100, 500: 500}
    assert compared == wanted
    assert entry_of("top_k", "compressor.density") == entry_of("top_k", "budget.density") == entry_of("top_k")


@pytest.mark.parametrize(("diverges_from", "is_trained"), [(1e-8, True), (3.333e-9, False)])
def test_a_direction_whose_pilots_diverge_is_tried_at_the_lowest_rate(
    diverges_from: float, is_trained: bool
) -> None:
    """If it fails there too, the method is not trained on this task, and the other task goes on."""
    train, lines = Trained(lambda period: 1e8 / max(period, 1.0)), list[str]()
    train.report = lines.append
    train.fails = lambda trial: (
        (trial.task, trial.method) == ("madelon", "reused_threshold") and trial.rate >= diverges_from
    )
    search.train_methods(["madelon", "wikitext2"], ["reused_threshold"], train, 1, "compressor.period")
    own = [trial for trial in train.of_seed(0) if trial.method == "reused_threshold"]
    assert {trial.share for trial in own if trial.task == "wikitext2"} == set(SHARES)
    assert {trial.share for trial in own if trial.task == "madelon"} == (set(SHARES) if is_trained else set())
    assert [line.partition(",")[0] for line in lines] == (
        [] if is_trained else ["madelon reused_threshold is not trained"]
    )


def test_a_knob_without_effect_or_number_is_one_line() -> None:
    with pytest.raises(
        ValueError, match=r"period is no knob: .*period=32 and .*period=64 send 100 bytes both"
    ):
        search.train_method(
            "madelon", entry_of("reused_threshold", "compressor.period"), DENSE, Trained(lambda _: 100)
        )
    with pytest.raises(ValueError, match=r"got no setting compressor\.nothing$"):
        entry_of("top_k", "compressor.nothing")


def test_a_knob_may_have_its_value_from_the_class() -> None:
    found = answer_here("trainers.config.knobs", [[["compressor=adacomp", "~compressor.conv_bin"], None]])
    assert found[0]["value"] is None and "+compressor.conv_bin" in found[0]["factors"]


def test_methods_without_a_knob_are_said_in_one_line() -> None:
    train, lines = Trained(lambda _: 1e8 / 32), []
    train.report = lines.append
    search.train_methods(["madelon"], ["ef_sign", "one_bit"], train, 1)
    assert lines == [
        "ef_sign, one_bit have no knob, a setting that changes the bytes, which a class declares or "
        "--knob KEY names: one setting is trained, for all budgets that its bytes meet"
    ]


@pytest.mark.parametrize("task", [name for name in TASKS if TASKS[name].excluded])
def test_a_method_that_a_task_excludes_is_not_trained_on_it(task: str) -> None:
    assert set(TASKS[task].excluded) <= set(method_names())
    train = Trained(lambda density: 3e8 * density if density else 1e8)
    search.train_methods([task], ["none", "top_k", *TASKS[task].excluded], train, 1)
    assert {trial.method for trial in train.found} == {"none", "top_k"}
