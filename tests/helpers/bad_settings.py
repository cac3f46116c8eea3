"""Invalid values of every setting: of the wrong type, out of range, or null."""

from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any, get_type_hints

import yaml
from configs import CONF
from hypothesis import strategies as st

WORDS = {  # settings with a fixed set of valid words
    "device": ("auto", "cpu", "cuda"),
    "scope": ("layer", "global"),
    "data.partition": ("iid", "contiguous", "by_label", "dirichlet"),
    "data.reshard": ("never", "epoch"),
    "schedule=inverse schedule.unit": ("step", "epoch"),
    "feedback.scale": ("gradient", "step"),
    "trainer.precision": ("fp32", "bf16"),
    "trainer.nonfinite": ("stop", "skip"),
    "trainer.reduction": ("worker_order", "all_reduce"),
    "compressor=top_k wire.indices": ("plain", "auto", "bitmap", "rice"),
    "compressor=top_k wire.values": ("fp32", "bf16", "fp16", "int8", "int4", "int2"),
    "tracker=wandb tracker.mode": ("online", "offline"),
    "tracker=wandb tracker.objective": (),  # hundreds of metrics are valid; no drawn word is one of them
    "compressor=top_k budget.schedule": ("constant", "exponential"),
    "compressor=random_k compressor.schedule": ("constant", "exponential"),
    "model=resnet18 model.variant": ("auto", "small", "imagenet"),
    "data=python_docs model=lstm data.objective": ("next_token", "windows", "masked"),
    "data=python_docs model=gpt data.objective=windows data.tokens": ("byte", "bpe", "word"),
    "data=python_docs model=gpt model.size": ("tiny", "mini", "small"),
    "data=python_docs model=bert data.objective=masked model.config": ("bert_tiny", "bert_mini", "bert_base"),
}
IMAGES = "data=image_folder data.name=x"
MAY_BE_NULL = {
    "data=python_docs model=gpt data.objective=windows data.tokens",
    *(f"tracker=wandb tracker.{key}" for key in ("mode", "objective", "tags")),
    *(f"{IMAGES} data.{key}" for key in ("mean", "std", "channels")),
}


def listed(text: str) -> tuple[str, ...]:
    """Settings with the words that they need: each line has keys, after the words and a colon if any."""
    found = []
    for line in text.strip().splitlines():
        words, _, keys = line.rpartition(":")
        found += [f"{words.strip()} {key}".strip() for key in keys.split()]
    return tuple(found)


def of_methods(kind: object) -> tuple[str, ...]:
    """Settings of all methods in conf/compressor whose type in the method's class is ``kind``."""
    found = []
    for path in sorted(CONF.glob("compressor/*.yaml")):
        keys = yaml.safe_load(path.read_text())
        hints = get_type_hints(resolve_name(keys["_target_"]).__init__)
        found += [f"compressor={path.stem} compressor.{key}" for key in keys if hints.get(key) == kind]
    return tuple(found)


FLAGS = of_methods(bool) + listed("""
    optimizer.nesterov checkpoint.at_end checkpoint.redistribute data.drop_last
    trainer.bucket_megabytes trainer.overlap trainer.channels_last
    model=resnet18: model.zero_init_residual
    model=resnet20: model.zero_init_residual
    data=mnist: data.download
    data=cifar10: data.augment
    data=wikitext2 model=lstm: data.download
    data=movielens model=neumf: data.download
    data=libsvm model=logistic_l2: data.download
    data=libsvm data.name=rows model=logistic_l2: data.replacement model.shift
    data=sst2 model=bert: data.lowercase
    data=image_folder data.name=x: data.augment
    data=python_docs model=bert data.objective=masked: model.download
    optimizer.nesterov=false optimizer.momentum=0 feedback=momentum_correction: feedback.masking
    tracker=wandb: tracker.checkpoints
""")
COUNTS = of_methods(int) + listed("""
    workers processes threads trainer.log_every trainer.evaluation_batch_size
    data=synthetic_ratings model=neumf: data.users data.items data.rank data.fewest data.most data.negatives
    data=synthetic_ratings model=neumf: model.factors
    data=python_docs model=lstm: model.width model.layers
    data=python_docs model=transformer: model.width model.layers model.heads
    data=movielens model=neumf: data.min_ratings
    data=least_squares model=least_squares: data.rows data.features
    data=image_folder data.name=x: data.decoders
    schedule=autolrs: schedule.tau schedule.tau_max schedule.trial_steps schedule.trials
    schedule=autolrs: schedule.validation_from
""")  # integers >= 1, not null
COUNTS_OR_NULL = of_methods(int | None) + listed("""
    checkpoint.every_steps trainer.steps trainer.batch_size trainer.micro_batch_size
    data=python_docs model=lstm: data.vocabulary_size data.bptt
    data=python_docs model=lstm: data.evaluation_columns data.evaluation_tokens
    data=python_docs model=bert data.objective=masked: data.max_length model.positions
    data=python_docs model=gpt data.objective=windows: data.length
    data=image_folder data.name=x: data.image_size
    data=sst2 model=bert: data.train_rows
""")
POSITIVE = of_methods(float) + listed("""
    timeout_seconds trainer.evaluate_every budget.density
    trainer.steps=null: trainer.epochs
    data=least_squares model=least_squares: data.condition
    optimizer=adam: optimizer.lr
    feedback=low_pass: feedback.beta
    schedule=cosine: schedule.peak
    schedule=warmup_step: schedule.decay
    schedule=inverse: schedule.decay
    schedule=inverse_sqrt: schedule.exponent
    schedule=autolrs: schedule.low schedule.high schedule.exploration
""")  # numbers > 0, not null
NOT_NEGATIVE = listed("""
    optimizer.weight_decay
    data=least_squares model=least_squares: data.noise
    data=synthetic_ratings model=neumf: data.skew data.taste
    data=image_folder data.name=x: data.memory_gib
    optimizer=adamw: optimizer.eps
    schedule=cosine: schedule.warmup_epochs
    schedule=warmup_step: schedule.warmup_epochs
    schedule=inverse: schedule.warmup
""")
NOT_NEGATIVE_OR_NULL = of_methods(float | None) + listed("""
    schedule=linear: schedule.warmup_epochs
    data=libsvm data.name=rows model=logistic_l2: model.l2
    data=least_squares model=least_squares: model.l2
    compressor=hard_threshold: budget.threshold
""")
POSITIVE_OR_NULL = listed("""
    tracker=wandb tracker.objective=test/accuracy: tracker.byte_budget
    feedback=diana compressor=qsgd: feedback.alpha
    compressor=terngrad: compressor.clip
    compressor=strom: compressor.threshold
    checkpoint.every_minutes trainer.clip_norm trainer.average_reset_epochs
    data=image_folder data.name=x: data.held_out
    data.partition=dirichlet: data.alpha
    data=python_docs model=bert data.objective=masked: data.masked_share
""")
NUMBERS_OR_NULL = listed("""
    data=libsvm data.name=rows model=logistic_l2: model.offset
    data=least_squares model=least_squares: model.offset
""")
LARGE = listed("""
    trainer.steps
    data=image_folder data.name=x: data.image_size data.decoders
    data=python_docs model=bert data.objective=masked: model.positions
    data=least_squares model=least_squares: data.rows
    data=synthetic_ratings model=neumf: data.users data.items data.rank data.negatives model.factors
    data=python_docs model=lstm: model.width model.layers
    data=python_docs model=transformer: model.width model.layers model.heads
""")  # sizes whose product with other sizes is allocated
SEEDS = listed("""
    seed
    data=synthetic_ratings model=neumf: data.draw_seed
    data=least_squares model=least_squares: data.draw_seed
""")
PARTS = listed("""
    compressor=chain: compressor.first compressor.second
    compressor=two_way: compressor.up compressor.down
""")  # settings whose value is a method
SHARES = listed("""
    optimizer.nesterov=false optimizer.momentum=0 feedback=momentum_correction: feedback.momentum
    feedback=ef21_sgdm: feedback.momentum
    optimizer.momentum model.dropout
    feedback=momentum_correction: optimizer.decay_momentum
    schedule=linear: schedule.warmup_share
    data=python_docs model=lstm: model.dropout
    data=python_docs model=transformer: model.dropout
    data=synthetic_ratings model=neumf: model.dropout
""")  # in [0, 1), not null
OPTIONS = of_methods(str)  # words; no drawn one is valid
NAN, INFINITE = float("nan"), float("inf")
LISTS = {  # settings with invalid values of their own
    "data=image_folder data.name=x data.mean": ([], ["a"], [None], [NAN] * 3, [INFINITE] * 3, [10**400] * 3),
    "data=image_folder data.name=x data.std": ([], [0] * 3, ["a"], [None], [INFINITE] * 3, [1e39] * 3),
    "data=image_folder data.name=x data.channels": ([1], [3], []),
    "data=text model=gpt data.files": ([], [1], [None], [""], ["/nowhere"], [["a"]]),
    "model.hidden": ([0], [-1], ["a"], [1.5], [None], [[3]], [10**30], [99_999_999_999], [2**17] * 3),
    "optimizer.no_decay": (["weight"], [1], [None], [[]]),
    "optimizer=adam optimizer.betas": (
        [],
        [0.9],
        [0.9, 1.0],
        [0.9, 0.9, 0.9],
        [-0.1, 0.9],
        ["a", "b"],
        [None, 0.9],
        [10**400, 0.9],
    ),
    "schedule=warmup_step schedule.milestones": ([3, 2], [1, 1], [-1], ["a"], [None], [[1]], [1e39]),
    "tracker=wandb tracker.tags": ([1], [None], [["a"]]),
    "tracker=wandb tracker.destinations": (
        None,
        [],
        "wandb",
        {"a": "required"},
        {"wandb": "a"},
        {"wandb": [1]},
    ),
    "data=synthetic_ratings model=neumf model.hidden": ([], [0], ["a"], [1.5], [None], [99_999_999_998]),
}
TEXTS = listed("""
    resume output name
    data=mnist: data.root
    data=libsvm model=logistic_l2: data.name data.home
    data=movielens model=neumf: data.name
    data=image_folder: data.name
""")
TEXTS_OR_NULL = listed("""
    data=sst2 model=bert: data.vocabulary
    data=python_docs model=bert data.objective=masked: data.vocabulary model.pretrained
    tracker=wandb: tracker.project tracker.entity tracker.group tracker.job_type tracker.notes
""")
SECTIONS = listed("model data compressor feedback optimizer schedule trainer tracker checkpoint wire")


words = st.text(
    st.characters(categories=("L", "N", "S"), exclude_characters="$\\{}'\""), min_size=1, max_size=30
)
not_numbers = st.one_of(
    words,
    st.just("x" * 5000),
    st.booleans(),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=2),
    st.sampled_from([float("nan"), float("inf"), -float("inf")]),
)
fractions = st.floats(0.01, 100, allow_nan=False).filter(lambda x: x != int(x))
too_long = st.integers(2**31, 2**70) | st.integers(20, 400).map(lambda digits: 10**digits)
too_large = st.floats(4e38, allow_infinity=False) | st.integers(39, 400).map(lambda digits: 10**digits)
negative = st.one_of(st.integers(max_value=-1), st.floats(max_value=-1e-3, allow_infinity=False))


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


def setting(keys: Any, values: st.SearchStrategy, null: bool = False) -> st.SearchStrategy:
    """``group=option ... key=value`` as a list of words."""
    values = values | st.none() if null else values
    return st.builds(
        lambda key, value: f"{key}={typed(value)}".split(" ", key.count(" ")), st.sampled_from(keys), values
    )


def bad_settings() -> Iterator[st.SearchStrategy]:
    """One invalid setting: of the wrong type, out of its range, or null."""
    zero = st.just(0)
    yield setting(COUNTS, st.one_of(not_numbers, zero, fractions, negative, too_long), null=True)
    yield setting(COUNTS_OR_NULL, st.one_of(not_numbers, zero, fractions, negative, too_long))
    yield setting(LARGE, st.integers(2**30, 2**31 - 1))
    yield setting(("workers", "processes", "threads", "seed"), st.integers(2**64, 10**40))
    yield setting(SEEDS, st.one_of(not_numbers, fractions, negative), null=True)
    yield setting(POSITIVE, st.one_of(not_numbers, zero, negative, too_large), null=True)
    yield setting(POSITIVE_OR_NULL, st.one_of(not_numbers, zero, negative, too_large))
    yield setting(NOT_NEGATIVE, st.one_of(not_numbers, negative, too_large), null=True)
    yield setting(NOT_NEGATIVE_OR_NULL, st.one_of(not_numbers, negative, too_large))
    yield setting(NUMBERS_OR_NULL, st.one_of(not_numbers, too_large))
    yield setting(SHARES, st.one_of(not_numbers, negative, st.floats(1, 1e9)), null=True)
    yield setting(
        FLAGS, st.one_of(words, st.integers(), fractions, st.lists(st.booleans(), max_size=2)), null=True
    )
    others = st.one_of(words, st.integers(), st.booleans(), st.lists(words, max_size=2), st.just({"a": 1}))
    yield setting(OPTIONS, others, null=True)
    for key, choices in WORDS.items():
        yield setting(
            [key], others.filter(lambda value, known=choices: value not in known), key not in MAY_BE_NULL
        )
    for key, lists in LISTS.items():
        yield setting(
            [key],
            st.one_of(
                st.sampled_from(lists), words, st.integers().filter(lambda x: x not in (1, 3)), st.booleans()
            ),
            key not in MAY_BE_NULL,
        )
    yield setting(
        TEXTS, st.one_of(st.integers(), st.booleans(), st.lists(words, max_size=2), st.just("")), null=True
    )
    yield setting(
        TEXTS_OR_NULL, st.one_of(st.integers(), st.booleans(), st.lists(words, max_size=2), st.just(""))
    )
    yield setting(
        PARTS, st.one_of(words, st.integers(), st.booleans(), st.lists(words, max_size=2)), null=True
    )
    yield setting(SECTIONS, st.dictionaries(st.sampled_from("abc"), st.integers(), min_size=1, max_size=2))
