"""The identity of a run: config -> (method, setting, seed), and run id, group and legend from these."""

import copy
import importlib
import inspect
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from configs import CONF, resolved
from omegaconf import OmegaConf

from trainers.config.targets import GROUPS
from trainers.identity.effects import (
    ANALYTIC,
    NO_CONVOLUTIONS,
    NOTHING_HELD_OUT,
    SINGLE,
    WITHOUT_EFFECT,
    refuse_without_effect,
    without_effect,
)
from trainers.identity.identity import (
    METHOD,
    Identity,
    Origin,
    identify,
)
from trainers.identity.values import DEFAULTS, FIRST_NAMES, LIBSVM_FILES, alike, at

# Written by hand: all settings in conf/ that change no result while the other settings have their defaults.
IDLE = {
    *("budget.density", "budget.schedule", "budget.threshold"),
    "compressor.gamma_quantile",
    *("checkpoint.at_end", "checkpoint.every_minutes", "checkpoint.every_steps", "checkpoint.redistribute"),
    *("data.alpha", "data.decoders", "data.download", "data.home", "data.memory_gib", "data.root"),
    *("device", "isolate", "kernels", "name", "output", "processes", "resume", "threads", "timeout_seconds"),
    *("diagnostics.every", "diagnostics.selection_error.densities", "diagnostics.staleness.ages"),
    *("model.download", "trainer.bucket_megabytes"),
    *("tracker.entity", "tracker.group", "tracker.job_type", "tracker.mode", "tracker.notes"),
    *("tracker.project", "tracker.tags", "tracker.checkpoints", "tracker.objective", "tracker.byte_budget"),
    *(f"tracker.destinations.{name}" for name in ("wandb", "tensorboard", "none")),
}
LIBSVM = "data.convex.libsvm.libsvm"
DENSE = "compressors.none.NoCompression"
# Settings with an effect in some configs only: key, config without effect, config with effect.
DEPENDS = [
    ("data.alpha", {"data.partition": "by_label"}, {"data.partition": "dirichlet"}),
    ("data.root", {}, {"data._target_": "data.images.folder.image_folder"}),
    ("data.root", {}, {"data._target_": "my_package.data.mine"}),
    ("data.root", *({"data._target_": LIBSVM, "data.name": name} for name in ("a9a", "mine"))),
    ("trainer.epochs", {"trainer.steps": 10}, {}),
    ("trainer.evaluate_every", {"data._target_": LIBSVM}, {}),
    ("trainer.evaluation_batch_size", {"data._target_": LIBSVM}, {}),
    ("optimizer.lr", {"schedule._target_": "trainers.schedules.autolrs.AutoLRS"}, {}),
    (
        "optimizer.decay_momentum",
        *({"optimizer.decay_momentum": 0.9, "optimizer.weight_decay": decay} for decay in (0.0, 1e-4)),
    ),
    ("schedule.warmup_share", {"schedule.warmup_epochs": 0}, {"schedule.warmup_epochs": None}),
    ("model.config", {"model.pretrained": "folder"}, {}),
    ("compressor.density", {"compressor.threshold": 0.1}, {"compressor.threshold": None}),
    (
        "compressor.gamma_quantile",
        *({"compressor.distribution": name} for name in ("exponential", "gamma_pareto")),
    ),
    ("feedback.scale", {"compressor._target_": DENSE}, {}),
    ("feedback._target_", {"compressor._target_": DENSE}, {}),
    *(
        ("feedback.scale", {"feedback._target_": f"compressors.feedback.{name}"}, {})
        for name in ("no_feedback", "EF21", "EF21SGDM", "DIANA")
    ),
    *(
        (
            "feedback.momentum",
            {"compressor._target_": DENSE},
            {"compressor._target_": DENSE, "feedback._target_": f"compressors.feedback.{name}"},
        )
        for name in ("MomentumCorrection", "EF21SGDM")
    ),
]
KNOWN_IDS = {  # later versions must find the run folders of this version
    "experiment=quick": "5a84d453b9",
    "experiment=three_parameters/lstm": "f6231a26b3",
    "experiment=convex/madelon_sgd": "1bb7024eb7",
    "experiment=small/neumf compressor=hard_threshold": "df31329cdc",
    "experiment=autolrs/resnet20 compressor=none": "37a6310616",
    "data=breast_cancer model=logistic_regression": "f7ab37567f",
    "data=cifar10 model=resnet18": "aec0802ec7",
    "data=cifar100 model=googlenet_cifar100": "27f197c860",
    "data=digits model=mlp": "e19fed0691",
    "data=fashion_mnist model=vgg11": "64f81171fb",
    "data=image_folder model=resnet50": "fe99a11a6d",
    "data=imagenet model=resnet34": "e5c78470ab",
    "data=least_squares model=least_squares": "71a14b2e8c",
    "data=libsvm model=logistic_l2": "7ca155735d",
    "data=mnist model=senet18": "9496939e07",
    "data=movielens model=neumf": "e7f1b3a578",
    "data=penn_treebank model=lstm": "1158d23439",
    "data=python_docs model=lstm": "4fd82c65a9",
    "data=sst2 model=bert": "8473096a54",
    "data=text model=gpt": "3352731da5",
    "data=synthetic_ratings model=neumf": "bd940ce1db",
    "data=wikitext2 model=bert": "bd9738de94",
}
FILES = [
    path
    for path in sorted(CONF.glob("*/*.yaml"))
    if path.parent.name not in ("sweeps", "experiment", "exception", "diagnostics")
]


@cache
def base() -> dict[str, Any]:
    return resolved("compressor=top_k", "diagnostics=[bound,selection_error,staleness,xi]")


@cache
def chosen(group: str, option: str) -> dict[str, Any]:
    """The base with another choice of one group."""
    choice = OmegaConf.load(CONF / group / f"{option}.yaml")
    choice.pop("defaults", None)
    if option == "image_folder":
        choice.name = "photos"
    return OmegaConf.to_container(OmegaConf.create(base() | {group: choice}), resolve=True)


def leaves(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        elif name not in ("_target_", "_partial_"):  # chosen by their group, for Hydra
            yield f"{prefix}{name}", value


def changed(config: dict[str, Any], **settings: Any) -> dict[str, Any]:
    config = copy.deepcopy(config)
    for key, value in settings.items():
        *groups, last = key.split(".")
        inner = config
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return config


def other(value: Any) -> Any:
    """Another value of a setting."""
    if isinstance(value, bool):
        return not value
    if value is None:
        return 7
    if isinstance(value, list):
        return [*value, *(value[-1:] or ["bias"])]
    return f"{value}2" if isinstance(value, str) else 2 * value + 1


def outcome(one: Identity, two: Identity) -> set[str]:
    """Names of the values that differ between two identities."""
    return {name for name in ("method", "setting", "seed", "id") if getattr(one, name) != getattr(two, name)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_setting_changes_one_of_three_and_the_id_or_is_on_the_list(path: Any) -> None:
    group = path.parent.name
    config = chosen(group, path.stem)
    before = identify(config)
    for key, value in leaves({group: config[group]} | {k: v for k, v in base().items() if k == "seed"}):
        after = identify(changed(config, **{key: other(value)}))
        differ = outcome(before, after)
        is_own = key == "data.root" and path.stem in ("image_folder", "text")  # a user's own files
        if key in IDLE and not is_own:
            assert differ == set() and without_effect(config, key).reason, key
        else:
            part = "method" if key.partition(".")[0] in METHOD else "seed" if key == "seed" else "setting"
            entry = without_effect(config, key)
            assert differ == {part, "id"} and (entry is None or entry.is_in_id), key
            assert (after.method.label != before.method.label) == (part == "method"), key


def test_a_setting_of_no_group_changes_one_of_three_or_is_on_the_list() -> None:
    before = identify(base())
    flat = {key: value for key, value in base().items() if not isinstance(value, dict)}
    flat |= dict(leaves({"diagnostics": base()["diagnostics"]}))
    assert flat.keys() - IDLE == {"nodes", "scope", "seed", "workers"}
    for key, value in flat.items():
        differ = outcome(before, identify(changed(base(), **{key: other(value)})))
        assert differ == (set() if key in IDLE else {"seed" if key == "seed" else "setting", "id"}), key


def test_the_hand_written_list_holds_nothing_that_conf_does_not() -> None:
    there = {key for path in FILES for key, _ in leaves(chosen(path.parent.name, path.stem))}
    assert there >= IDLE
    keys = [key for entry in WITHOUT_EFFECT for key in entry.keys]
    of_conf = {
        key for key in keys for leaf in there | {"feedback._target_"} if f"{leaf}.".startswith(f"{key}.")
    }
    assert of_conf == set(keys), "entries of the list that no setting in conf/ has"


@pytest.mark.parametrize(("key", "ignored", "free"), DEPENDS, ids=lambda x: x if isinstance(x, str) else "")
def test_what_matters_under_other_settings(key: str, ignored: dict, free: dict) -> None:
    for settings, matters in ((ignored, False), (free, True)):
        config = changed(base(), **settings)
        one, two = (identify(changed(config, **{key: value})) for value in ("dirichlet", "folder"))
        assert (outcome(one, two) != set()) == matters, settings
        assert (one.id != two.id) == matters
        entry = without_effect(config, key)
        assert (entry is None) == matters
        if entry is not None:
            assert "{" not in entry.reason.format_map(config)


def test_a_threshold_of_the_first_step_leaves_the_density_in_force() -> None:
    words = ("compressor=micro", "compressor.first_threshold=1")
    one, two = (identify(resolved(*words, f"budget.density={share}")) for share in (0.1, 0.2))
    assert one.id != two.id and one.setting == two.setting


def test_libsvm_files_of_a_known_name_are_those_that_their_reader_knows() -> None:
    from data.convex.libsvm import SHAPES

    assert set(LIBSVM_FILES) == SHAPES.keys()


@pytest.mark.parametrize("fact", [SINGLE, NO_CONVOLUTIONS, ANALYTIC, NOTHING_HELD_OUT])
def test_facts_of_a_start_change_no_identity_and_refuse_settings_without_effect(fact: str) -> None:
    keys = [key for entry in WITHOUT_EFFECT if entry.fact == fact for key in entry.keys]
    assert keys
    for key in keys:
        refuse_without_effect(base(), [key])  # no refusal: the config alone does not determine the fact
        with pytest.raises(ValueError, match=f"^{key} has no effect"):
            refuse_without_effect(base(), [key], {fact})


@pytest.mark.parametrize("group", sorted({path.parent.name for path in FILES}))
def test_the_choices_of_a_group_have_identities_of_their_own(group: str) -> None:
    found = [identify(chosen(group, path.stem)) for path in FILES if path.parent.name == group]
    if without_effect(base(), group):
        assert len(set(found)) == 1
    else:
        assert len({each.id for each in found}) == len(found)
        labels = {each.method.label for each in found}
        assert len(labels) == (len(found) if group in METHOD else 1)


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_setting_that_an_older_config_lacks_has_its_usual_value(key: str) -> None:
    group, _, last = key.rpartition(".")
    config = changed(base(), **{"compressor.schedule": {"kind": "exponential"}} if "schedule." in key else {})
    lacking = copy.deepcopy(config)
    at(lacking, group).pop(last, None)
    assert identify(lacking) == identify(changed(config, **{key: DEFAULTS[key]}))
    unusual = identify(changed(config, **{key: "another"}))
    assert (unusual.id == identify(lacking).id) == (key in IDLE)


def test_usual_values_are_what_the_code_takes_where_nothing_is_said() -> None:
    told = {}
    for path in FILES:
        target = str(OmegaConf.load(path).get("_target_", ""))
        if target:
            module, _, name = target.rpartition(".")
            factory = getattr(importlib.import_module(module), name)
            for key, parameter in inspect.signature(factory).parameters.items():
                if f"{path.parent.name}.{key}" in DEFAULTS and parameter.default is not parameter.empty:
                    told.setdefault(f"{path.parent.name}.{key}", set()).add(parameter.default)
    del told["feedback.scale"]  # feedback=none accepts a preset's value and ignores it
    from compressors.core.density import Exponential
    from data.partition import Sharing

    told |= {f"data.{key}": {getattr(Sharing(), key)} for key in ("drop_last", "reshard")}
    told |= {f"compressor.schedule.{key}": {getattr(Exponential(), key)} for key in ("start", "epochs")}
    assert {key: {value} for key, value in DEFAULTS.items() if key in told} == told
    others = DEFAULTS.keys() - told.keys()
    parts = {f"{group}._target_" for group in ("feedback", "local", "trainer", "wire")}
    assert others == parts | {"feedback.scale", "trainer.overlap"}
    current = others - {"trainer.overlap"}
    assert {alike(at(resolved(), key)) for key in current} == {DEFAULTS[key] for key in current}


@pytest.mark.parametrize("words", KNOWN_IDS)
def test_ids_stay_what_they_are(words: str) -> None:
    """A new setting needs an entry in ``DEFAULTS`` if its default is not null."""
    own = [] if "compressor=" in words else ["compressor=top_k"]
    if words.startswith("data="):
        needed = {"image_folder": "data.name=x", "text": "data.files=[x]"}
        own += [needed.get(words.split()[0].removeprefix("data="), "data.partition=dirichlet")]
    assert identify(resolved(*words.split(), *own)).id == KNOWN_IDS[words]


def test_every_choice_of_data_has_a_known_id() -> None:
    of_data = {words.split()[0].removeprefix("data=") for words in KNOWN_IDS if words.startswith("data=")}
    assert of_data == {path.stem for path in CONF.glob("data/*.yaml")}


@pytest.mark.parametrize(("name", "first"), FIRST_NAMES.items())
def test_an_id_is_that_of_the_first_name(name: str, first: str) -> None:
    """So are the ids of archived runs, whichever name their configs have."""
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute) and first not in FIRST_NAMES
    places = {group.place: key for key, group in GROUPS.items() if f"{name}.".startswith(f"{group.place}.")}
    group = places[max(places, key=len)]
    now, before, else_ = (
        changed(base(), **{f"{group}._target_": target}) for target in (name, first, "some.other.part")
    )
    assert identify(now).id == identify(before).id != identify(else_).id


@pytest.mark.parametrize(
    ("key", "equal"),
    [
        ("compressor.threshold", (0, 0.0, -0.0)),
        ("compressor.threshold", (2, 2.0)),
        ("optimizer.lr", (10, 1e1)),
        ("schedule.peak", (1, 1.0)),
        ("data.mean", ([0, 1.0], [0.0, 1], [-0.0, 1])),
        ("compressor.schedule", ("exponential", {"kind": "exponential"})),
        ("compressor.schedule", ("exponential", {"kind": "exponential", "start": 0.25, "epochs": 4.0})),
    ],
)
def test_equal_values_have_one_identity(key: str, equal: tuple) -> None:
    found = {identify(changed(base(), **{key: value})) for value in equal}
    assert len(found) == 1 and len({each.id for each in found}) == 1
    for unlike in (3, False, "0", [1, 0]):
        assert identify(changed(base(), **{key: unlike})).id not in {each.id for each in found}


@pytest.mark.parametrize(
    ("overrides", "label"),
    [
        (["compressor=none"], "none"),
        (["compressor=none", "feedback=none"], "none"),
        (["compressor=top_k"], "top_k, density 0.001"),
        (["compressor=hard_threshold"], "hard_threshold, density 0.001"),
        (
            ["compressor=hard_threshold", "budget.threshold=1e-5", "feedback=none"],
            "hard_threshold, threshold 1e-05, no feedback",
        ),
        (
            ["compressor=random_k", "compressor.shared_coordinates=false", "feedback.scale=step"],
            "random_k, density 0.001, shared_coordinates False, feedback.scale step",
        ),
        (
            ["compressor=top_k", "wire.indices=auto", "wire.values=int8", "budget.schedule=exponential"],
            "top_k, density 0.001, schedule exponential, wire.indices auto, wire.values int8",
        ),
        (
            ["compressor=top_k", "budget.schedule={kind: step, milestones: [3], factor: 0.5}"],
            "top_k, density 0.001, schedule step, schedule.factor 0.5, schedule.milestones [3]",
        ),
    ],
)
def test_a_method_in_words(overrides: list[str], label: str) -> None:
    assert identify(resolved(*overrides)).method.label == label


def test_parts_inside_a_method_are_named() -> None:
    top_k = {"_target_": "compressors.top_k.TopK", "density": 0.01}
    outer = {"_target_": "compressors.cascade.Cascade", "inner": top_k, "stages": [top_k, {"bits": 4}]}
    config = changed(base(), compressor=outer, **{"feedback._target_": "compressors.feedback.EF21"})
    method = identify(config).method
    assert method.label == (
        "cascade, inner: top_k, inner.density 0.01, stages.0: top_k, stages.0.density 0.01, stages.1.bits 4, "
        "feedback: compressors.feedback.EF21"
    )
    assert method.family == "cascade, inner: top_k, stages.0: top_k, feedback: compressors.feedback.EF21"


def test_two_methods_share_no_label() -> None:
    draw = random.Random(0)
    values = [0, 1, 2, 0.1, 0.10000000000000002, 1e-5, 1e22, True, False, None, "", "a", "a b", "0.1", "True"]
    values += [
        "a, k 2",
        "unset",
        "nan",
        "[1]",
        (1,),
        ("1",),
        "-",
        "[1, 2]",
        [1, 2],
        ["1", 2],
        [],
        "1e5",
        "inf",
        "k 2",
        'a"b',
        "top_k",
        "none",
    ]
    targets = [
        "compressors.top_k.TopK",
        "compressors.top_k.Other",
        "top_k.TopK",
        "top_k",
        "compressors.top_k",
    ]
    targets += ["compressors.none.NoCompression", "compressors.none.None", "none.none", "a.b, k 1"]

    def part(depth: int) -> dict[str, Any]:
        made = {"_target_": draw.choice(targets)}
        for key in draw.sample(["density", "k", "inner", "schedule", "wire"], draw.randrange(3)):
            made[key] = part(depth - 1) if depth and draw.random() < 0.4 else draw.choice(values)
        return made

    labels = {}
    for _ in range(4000):
        config = {"compressor": part(2), "wire": {"values": draw.choice(values)}, "feedback": part(1)}
        method = identify(config).method
        assert labels.setdefault(method.label, method) == method, (labels[method.label], method)
    assert len(labels) > 2000


def test_settings_taken_for_a_part_of_the_method_leave_the_id() -> None:
    config = changed(base(), **{"data.partition": "dirichlet", "data.alpha": 0.1})
    plain = identify(config)
    across = plain.across(["scope", "data.alpha"])
    assert across.method.label == "top_k, density 0.001, scope layer, alpha 0.1"
    assert across.method.family == "top_k, scope layer"
    assert (across.id, across.group) == (plain.id, plain.group)
    layers, whole = (
        identify(changed(config, scope=scope)).across(["scope"]) for scope in ("layer", "global")
    )
    assert layers.setting == whole.setting and layers.method != whole.method


def test_a_run_that_begins_at_another_runs_checkpoint_is_a_setting_of_its_own() -> None:
    fresh, one, two = (
        identify(base(), origin) for origin in (None, Origin("a 100 x", "f 100"), Origin("b 100 y", "g 100"))
    )
    for name in ("id", "setting", "group"):
        assert len({getattr(each, name) for each in (fresh, one, two)}) == 3
    assert fresh.method == one.method
    seed_1 = identify(changed(base(), seed=1), Origin("c 100 z", "f 100"))  # its own seed's checkpoint
    assert one.id != seed_1.id and (one.group, one.setting) == (seed_1.group, seed_1.setting)
