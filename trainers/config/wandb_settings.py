"""Settings of Weights & Biases: from the command line, else from its environment variables, else defaults."""

from collections.abc import Mapping, Sequence

from compressors.core.checks import shown

VARIABLES = {
    "project": "WANDB_PROJECT",
    "entity": "WANDB_ENTITY",
    "group": "WANDB_RUN_GROUP",
    "job_type": "WANDB_JOB_TYPE",
    "notes": "WANDB_NOTES",
    "tags": "WANDB_TAGS",
    "mode": "WANDB_MODE",
}
_NOT_TAKEN = ("WANDB_NAME", "WANDB_DIR")  # ignored: a run has the name of its folder, and its files are there
_DEFAULTS = {"project": "total-error", "mode": "offline"}
_MODES = ("online", "offline")
_MODES_OF_WANDB = (*_MODES, "disabled", "dryrun", "run", "shared")
_NAMES = {"entity": 128, "group": 128, "job_type": 64, "notes": 10_000}  # largest numbers of characters

Settings = dict[str, object]


def wandb_settings(typed: Mapping[str, object], environment: Mapping[str, str]) -> tuple[Settings, str]:
    """The settings for W&B, and a line about the environment variables in use; empty if there are none.

    ``typed`` has all keys of ``VARIABLES``, with null for settings that are not on the command line. The
    project may be ENTITY/NAME. Raises ``ValueError`` for values that W&B does not accept.
    """
    found = _checked(typed, {key: f"tracker.{key}" for key in VARIABLES}, _MODES)
    values = {key: environment[name] for key, name in VARIABLES.items() if environment.get(name)}
    given: Settings = {key: value.split(",") if key == "tags" else value for key, value in values.items()}
    given = _checked(given, VARIABLES, _MODES_OF_WANDB)
    notes = []
    if environment.get("WANDB_SWEEP_ID"):  # an agent's runs must be in the project of its sweep
        for key in ("project", "entity"):
            if key in found:
                notes.append(f"the project of its sweep instead of tracker.{key}={found.pop(key)}")
    for key, value in given.items():
        if key not in found:
            notes.append(f"{VARIABLES[key]}={_in_words(value)}")
        elif found[key] != value:
            typed_value, environment_value = _in_words(found[key]), _in_words(value)
            notes.append(f"tracker.{key}={typed_value} instead of {VARIABLES[key]}={environment_value}")
    notes += [f"{name} is ignored" for name in _NOT_TAKEN if environment.get(name)]
    message = f"settings of Weights & Biases: {'; '.join(notes)}" if notes else ""
    return {**_DEFAULTS, **given, **found}, message


def _checked(settings: Mapping[str, object], names: Mapping[str, str], modes: Sequence[str]) -> Settings:
    """The settings that are not null, with ENTITY/NAME split. ``names`` are used in refusals."""
    found = {key: value for key, value in settings.items() if value is not None}
    if "project" in found:
        project = found["project"]
        rule = f"{names['project']} must be NAME or ENTITY/NAME"
        parts = project.split("/") if isinstance(project, str) else []
        if len(parts) not in (1, 2) or not all(_is_name(part) for part in parts):
            raise ValueError(f"{rule}, got {shown(project)}")
        *entity, found["project"] = parts
        if entity and found.setdefault("entity", entity[0]) != entity[0]:
            other = f"{names['entity']}={shown(found['entity'])}"
            raise ValueError(f"{names['project']}={project} names another entity than {other}")
    for key, length in _NAMES.items():
        value = found.get(key, "none")
        if not isinstance(value, str) or not 0 < len(value) <= length:
            raise ValueError(f"{names[key]} must be a string of 1 to {length} characters, got {shown(value)}")
    if not _is_name(found.get("entity", "none")):
        raise ValueError(f"{names['entity']} must be a name, got {shown(found['entity'])}")
    if "mode" in found and found["mode"] not in modes:
        rule = f"{', '.join(modes[:-1])} or {modes[-1]}"
        raise ValueError(f"{names['mode']} must be {rule}, got {shown(found['mode'])}")
    tags = found.get("tags", [])
    if not isinstance(tags, (list, tuple)) or not all(isinstance(t, str) and 0 < len(t) <= 64 for t in tags):
        raise ValueError(f"{names['tags']} must be a list of words, got {shown(tags)}")
    return found


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 128 and not set(value) & set("/\\#?%:")


def _in_words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else shown(value).strip("'")
