"""What a run's method and subject are called, from its config: the same in legends, tables and trackers."""

from typing import Any

Config = dict[str, Any]
USUAL_WIRE = {"indices": "plain", "values": "fp32"}


def compressor_name(config: Config) -> str:
    """The compressor as on the command line: the file that it lives in."""
    return config["compressor"]["_target_"].split(".")[-2]


def subject(config: Config) -> str:
    """What was trained, without the method: model and data, unless the run was given a name."""
    return config["name"].removesuffix(f"-{compressor_name(config)}")


def method(config: Config) -> str:
    """The compressor with its settings, for a legend."""
    settings = {k: v for k, v in config["compressor"].items() if k != "_target_" and v is not None}
    if "threshold" in settings:
        settings.pop("density", None)
    if settings.get("shared_coordinates") is True:
        del settings["shared_coordinates"]
    schedule = settings.pop("schedule", "constant")
    if schedule != "constant":
        settings["schedule"] = " ".join(_words(schedule))
    words = [
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in settings.items()
    ]
    name = compressor_name(config)
    if name != "none" and config["feedback"]["_target_"].endswith("no_feedback"):
        words.append("no feedback")
    wire = config.get("wire", {})  # which runs had none of before there was a choice
    words += [f"{wire[key]} {key}" for key, usual in USUAL_WIRE.items() if wire.get(key, usual) != usual]
    return ", ".join([name, *words])


def _words(schedule: Any) -> list[str]:
    """A density schedule's kind and settings."""
    if not isinstance(schedule, dict):
        return [str(schedule)]
    rest = [f"{key} {value}" for key, value in schedule.items() if key != "kind"]
    return [str(schedule.get("kind")), *rest]
