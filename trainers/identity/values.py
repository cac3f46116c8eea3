"""Values of settings in normal form: names of parts, and settings that a config lacks.

The names are data, because run ids are computed without importing the parts, also for old configs whose parts
have moved.
"""

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]
Value = str | int | float | bool | tuple["Value", ...] | None

IMAGE_FOLDER, LIBSVM = "data.image_folder.image_folder", "data.libsvm.libsvm"
TEXT = "data.text.language_modelling.text"
LIBSVM_FILES = (
    "a9a",
    "gisette_scale",
    "madelon",
    "mushrooms",
    "phishing",
    "rcv1_train.binary",
    "w8a",
)  # the known files of data.convex.libsvm
AUTOLRS, WARMUP_STEP = "trainers.autolrs.AutoLRS", "trainers.schedule.WarmupStep"
NO_FEEDBACK, NONE = "compressors.feedback.no_feedback", "compressors.none.NoCompression"
# Feedback that changes dense training, by its momentum; and other feedback without a residual
MOMENTA = ("compressors.feedback.MomentumCorrection", "compressors.feedback.EF21SGDM")
WITHOUT_RESIDUAL = tuple(f"compressors.feedback.{name}" for name in ("EF21", "EF21SGDM", "DIANA"))
# Current and first name of each part that was moved. Run ids contain the first name, so a move does not
# change them.
FIRST_NAMES = {
    "compressors.encoding.settings.Encoding": "compressors.wire.Wire",
    "data.convex.breast_cancer.breast_cancer": "data.sklearn_data.breast_cancer",
    "data.convex.libsvm.libsvm": LIBSVM,
    "data.images.digits.digits": "data.sklearn_data.digits",
    "data.images.folder.image_folder": IMAGE_FOLDER,
    "data.images.folder.imagenet": "data.image_folder.imagenet",
    **{f"data.images.cifar.{name}": f"data.torchvision_data.{name}" for name in ("cifar10", "cifar100")},
    **{f"data.images.mnist.{name}": f"data.torchvision_data.{name}" for name in ("fashion_mnist", "mnist")},
    "data.ratings.movielens.movielens": "data.movielens.movielens",
    "data.ratings.synthetic.synthetic_ratings": "data.synthetic_ratings.synthetic_ratings",
    "data.text.sst2.sst2": "data.glue.sst2",
    **{
        f"data.text.language_modelling.{name}": f"data.text.{name}"
        for name in ("penn_treebank", "python_docs", "wikitext2")
    },
    "models.convex.logistic_l2.logistic_l2": "models.logistic_l2.logistic_l2",
    "trainers.schedules.autolrs.AutoLRS": AUTOLRS,
    "trainers.schedules.schedules.ConstantRate": "trainers.schedule.Constant",
    **{
        f"trainers.schedules.schedules.{name}": f"trainers.schedule.{name}"
        for name in ("Cosine", "Linear", "WarmupStep")
    },
}
FIRST_KEYS = {"optimizer.no_decay": "optimizer.undecayed"}  # the same for settings
# Values of settings that are missing from a config. An identity contains only settings with another value, so
# a new setting does not change old ids. For all settings not listed this value is null.
DEFAULTS: dict[str, Value] = {
    "compressor.residual": "local",
    "compressor.schedule": "constant",
    "compressor.schedule.start": 0.25,
    "compressor.schedule.epochs": 4,
    "compressor.shared_coordinates": True,
    "compressor.unbiased": False,
    "data.drop_last": False,
    "data.reshard": "never",
    "feedback._target_": "compressors.feedback.ErrorFeedback",
    "feedback.scale": "gradient",
    "local._target_": "trainers.local.every_step",
    "model.zero_init_residual": False,
    "optimizer.decay_momentum": 0,
    "trainer._target_": "trainers.settings.TrainerSettings",
    "trainer.bucket_megabytes": 25,
    "trainer.channels_last": False,
    "trainer.nonfinite": "stop",
    "trainer.overlap": False,  # a former setting, in configs of finished runs
    "trainer.precision": "fp32",
    "trainer.reduction": "worker_order",
    "wire._target_": "compressors.wire.Wire",
    "wire.indices": "plain",
    "wire.values": "fp32",
}


def at(config: Config, key: str) -> object:
    """The setting at a dotted key, None if there is none."""
    value: object = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def alike(value: object) -> Value:
    """A value of a config in normal form: equal numbers are identical, parts have their first names."""
    if isinstance(value, (list, tuple)):
        return tuple(map(alike, value))
    if isinstance(value, float) and value.is_integer():
        return int(value)  # an int has no -0
    if isinstance(value, str):
        return FIRST_NAMES.get(value, value)
    return value if value is None or isinstance(value, (int, float, bool)) else str(value)
