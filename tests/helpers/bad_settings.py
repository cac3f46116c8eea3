"""Invalid values of every setting in conf/: of the wrong type, out of range, or null."""

from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any, get_type_hints

import yaml
from configs import CONF, in_use
from hypothesis import strategies as st

from data.partition import Sharing

SECTIONS = ("model", "data", "compressor", "feedback", "optimizer", "schedule", "trainer", "tracker")
SECTIONS += ("checkpoint", "wire", "local")
ANY_WORD = {  # settings for which a word is no mistake
    *("data.root", "data.name", "data.home", "data.vocabulary", "model.pretrained"),
    *(f"tracker.{name}" for name in ("project", "entity", "group", "job_type", "notes")),
}
MAY_BE_ZERO = {"data.draw_seed", "data.noise", "data.skew", "data.taste", "data.memory_gib"}
MAY_BE_ZERO |= {"optimizer.lr", "optimizer.eps", "optimizer.weight_decay", "optimizer.decay_momentum"}
MAY_BE_ZERO |= {"optimizer.momentum", "schedule.warmup_epochs", "schedule.warmup_share", "schedule.warmup"}
MAY_BE_ZERO |= {
    "local.delay",
    "local.blend",
    "model.l2",
    "model.dropout",
    "feedback.momentum",
    "compressor.threshold",
}
BELOW_ONE = ("blend", "momentum", "decay_momentum", "dropout", "warmup_share")
MAY_BE_NEGATIVE = {"model.offset"}
OF_TEXTS = {  # types of settings that the factories of texts pass on
    **dict.fromkeys((f"data.{name}" for name in ("vocabulary_size", "bptt", "length")), int | None),
    **dict.fromkeys((f"data.evaluation_{name}" for name in ("columns", "tokens")), int | None),
    "data.masked_share": float | None,
    "data.tokens": str | None,
}
NAN, INFINITE = float("nan"), float("inf")
LISTS: dict[str, tuple[Any, ...]] = {  # settings with invalid values of their own
    "data.files": ([], [1], [None], [""], ["/nowhere"], [["a"]]),
    "data.mean": ([], ["a"], [None], [NAN] * 3, [INFINITE] * 3, [10**400] * 3),
    "data.std": ([], [0] * 3, ["a"], [None], [INFINITE] * 3, [1e39] * 3),
    "data.channels": ([1], [3], []),
    "model.hidden": ([0], [-1], ["a"], [1.5], [None], [[3]], [10**30], [99_999_999_999]),
    "optimizer.no_decay": (["weight"], [1], [None], [[]]),
    "optimizer.betas": (
        [],
        [0.9],
        [0.9, 1.0],
        [0.9] * 3,
        [-0.1, 0.9],
        ["a", "b"],
        [None, 0.9],
        [10**400, 0.9],
    ),
    "schedule.milestones": ([3, 2], [1, 1], [-1], ["a"], [None], [[1]], [1e39]),
    "tracker.tags": ([1], [None], [["a"]]),
    "tracker.destinations": ([], "wandb", {"a": "required"}, {"wandb": "a"}, {"wandb": [1]}),
}
LARGE = {  # sizes whose product with other sizes is allocated
    *("trainer.steps", "data.image_size", "data.decoders", "data.rows", "data.users", "data.items"),
    *("data.rank", "data.negatives", "model.factors", "model.positions", "model.width", "model.layers"),
}

words = st.text(
    st.characters(categories=("L", "N", "S"), exclude_characters="$\\{}'\""), min_size=1, max_size=30
)
not_numbers = st.one_of(
    words,
    st.just("x" * 5000),
    st.booleans(),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=2),
    st.sampled_from([NAN, INFINITE, -INFINITE]),
)
fractions = st.floats(0.01, 100, allow_nan=False).filter(lambda x: x != int(x))
too_long = st.integers(2**31, 2**70) | st.integers(20, 400).map(lambda digits: 10**digits)
too_large = st.floats(4e38, allow_infinity=False) | st.integers(39, 400).map(lambda digits: 10**digits)
negative = st.one_of(st.integers(max_value=-1), st.floats(max_value=-1e-3, allow_infinity=False))
no_texts = st.one_of(st.integers(), st.booleans(), st.lists(words, max_size=2), st.just(""))
WRONG: dict[object, st.SearchStrategy] = {  # by type
    bool: st.one_of(words, st.integers(), fractions, st.lists(st.booleans(), max_size=2)),
    bool | str: st.one_of(words, fractions, st.lists(st.booleans(), max_size=2)),
    int: st.one_of(not_numbers, fractions, negative, too_long),
    float: st.one_of(not_numbers, negative, too_large),
    str: st.one_of(words, st.integers(), st.booleans(), st.lists(words, max_size=2), st.just({"a": 1})),
    object: st.one_of(words, st.integers(), st.booleans(), st.lists(words, max_size=2)),  # another method
}


def types() -> dict[tuple[str, ...], object]:
    """By the words that choose an option of a group, and a setting's key: the setting's type.

    Some factories take settings for another one of their group, which then tells the type.
    """
    found: dict[tuple[str, ...], Any] = {}
    of_nulls = set()
    for path in sorted(CONF.glob("*/*.yaml")):
        group, settings = path.parent.name, yaml.safe_load(path.read_text()) or {}
        if group not in SECTIONS or "_target_" not in settings:
            continue
        factory = resolve_name(settings["_target_"])
        hints = get_type_hints(factory.__init__ if isinstance(factory, type) else factory)
        for name in settings:
            if not name.startswith("_") and name != "defaults":
                chosen = (*in_use(group, path.stem), f"{group}.{name}")
                found[chosen] = hints.get(name)
                of_nulls |= {chosen} if settings[name] is None else set()
    sharing = {f"data.{name}": kind for name, kind in get_type_hints(Sharing).items()}
    of_group = sharing | OF_TEXTS | {words[-1]: kind for words, kind in found.items() if kind is not None}
    found = {words: of_group[words[-1]] if kind is None else kind for words, kind in found.items()}
    return {words: kind | None if words in of_nulls else kind for words, kind in found.items()}


def wrong(key: str, kind: Any) -> st.SearchStrategy:
    """Values that a setting of this type must not have."""
    if key in LISTS:
        odd = st.integers().filter(lambda x: x not in (1, 3))  # numbers of channels
        return st.one_of(st.sampled_from(LISTS[key]), words, odd, st.booleans())
    plain = next((each for each in WRONG if kind in (each, each | None)), object)
    of_null = st.nothing() if kind == plain | None else st.none()
    if key in ANY_WORD:
        return no_texts | of_null
    if key in MAY_BE_NEGATIVE:
        return not_numbers | too_large
    values = WRONG[plain] | of_null
    if plain in (int, float) and key not in MAY_BE_ZERO:
        values |= st.just(0)
    if key.rpartition(".")[2] in BELOW_ONE:
        values |= st.floats(1, 1e9)
    return values | st.integers(2**30, 2**31 - 1) if key in LARGE else values


def typed(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return "'" + value.replace("'", "\\'") + "'"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{typed(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(typed, value)) + "]"
    return str(value)


def bad_settings() -> Iterator[st.SearchStrategy]:
    """One invalid setting, with the words in which it is one."""
    for (*chosen, key), kind in types().items():
        yield wrong(key, kind).map(lambda value, key=key, chosen=chosen: [*chosen, f"{key}={typed(value)}"])
    counts = st.one_of(not_numbers, fractions, negative, st.integers(2**64, 10**40), st.none())
    positive = st.one_of(not_numbers, negative, too_large, st.none(), st.just(0))
    shares = st.one_of(not_numbers, negative, st.floats(1, 1e9))
    others = {
        **dict.fromkeys(("workers", "processes", "threads"), counts | st.just(0)),
        "seed": counts,
        **dict.fromkeys(("timeout_seconds", "budget.density"), positive),
        **dict.fromkeys(("device", "scope", "kernels", "isolate"), WRONG[str] | st.none()),
        **dict.fromkeys(("resume", "output", "name"), no_texts | st.none()),
        "feedback=momentum_correction optimizer.decay_momentum": shares,
        **dict.fromkeys(SECTIONS, st.dictionaries(st.sampled_from("abc"), st.integers(), min_size=1)),
    }
    for key, values in others.items():
        yield values.map(lambda value, key=key: f"{key}={typed(value)}".split(" ", key.count(" ")))
