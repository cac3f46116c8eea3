"""Suggestions for misspelt settings and misspelt choices of a group."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from hydra.core.override_parser.types import Override

from trainers.config import targets
from trainers.config.installed import config_names
from trainers.files.plain import Config
from trainers.identity.effects import paths, without_effect

_OTHER_NAMES = {"lambda": "threshold", "learning_rate": "lr", "k": "density"}
_CUTOFF = 0.7  # least ratio of difflib for a suggestion


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name in ``known`` with the most similar spelling, or None if none is similar."""
    return next(iter(get_close_matches(name, list(known), 1, _CUTOFF)), None)


def question(names: Iterable[str]) -> str:
    """A question for the end of a refusal, whether one of ``names`` was meant; empty without names."""
    found = " or ".join(names)
    return f"; did you mean {found}?" if found else ""


def refusal_of_setting(key: str, word: str, config: Config) -> str:
    """The refusal of ``word``, which sets ``key``, with its reason and a suggestion.

    ``config`` is the composed config. A ``+`` is suggested only for a setting that the part has.
    """
    group, _, name = key.partition(".")
    entry = without_effect(config, key) if name else None
    if entry is not None and entry.is_refused:
        return f"Could not override '{key}': {entry.message(key, config)}"
    if key in ("data.root", "data.download") and "root" not in config.get("data", {}):
        data = str(config["data"].get("_target_")).rpartition(".")[2]
        return f"Could not override '{key}': {data} reads no files"
    if name in targets.settings_of(config, group):
        return f"Could not override '{key}', which no config file sets; to set it, type +{word}"
    if isinstance(part := config.get(group), dict) and not {*part} - {"_target_", "_partial_"}:
        return f"Could not override '{key}': this choice of {group} has no settings; --help lists the others"
    advice = question(nearest_settings(key, config)) or "; --help lists the settings"
    return f"Could not override '{key}': there is no such setting{advice}"


def nearest_settings(key: str, config: Config) -> list[str]:
    """Settings of a composed config with the same name in another group, or with a similar spelling."""
    known = list(dict.fromkeys(_settings(config)))
    owner, _, name = key.rpartition(".")
    name = _OTHER_NAMES.get(name.lower(), name)
    namesakes = [k for k in known if k.rpartition(".")[2] == name]
    if f"{owner}.{name}" in namesakes:
        return [f"{owner}.{name}"]
    if namesakes:
        return namesakes
    if not owner and (found := nearest(name, known)):
        return [found]
    last = nearest(name, dict.fromkeys(k.rpartition(".")[2] for k in known))
    return [k for k in known if k.rpartition(".")[2] == last]


def refusal_of_choice(path: str, options: Iterable[str]) -> str:
    """The refusal of the unknown config ``path``: GROUP/NAME, or hydra/GROUP/NAME.

    ``options`` are Hydra's, which lack those in subfolders.
    """
    parts = path.split("/")
    depth = 2 if parts[0] == "hydra" else 1
    group, name = "/".join(parts[:depth]), "/".join(parts[depth:])
    known = sorted({*options, *config_names(group)})
    near = nearest(name, known)
    inside = [option for option in known if option.startswith(f"{name}/")]
    sign = "+" if group == "sweeps" else ""
    advice = question([f"{sign}{group}={near}"] if near else [])
    return f"Could not find '{path}'{advice or ':'} There are {', '.join(inside or known)}"


def refusal_of_value(override: Override, options: Sequence[str]) -> str:
    """The refusal of a choice of a group that is not a text, such as false or null."""
    group, _, got = (override.input_line or "").partition("=")
    near = [f"{group}=none"] if not override.value() and "none" in options else []
    return f"{group} must be one of {', '.join(options)}, got {got}{question(near)}"


def _settings(config: Config) -> Iterator[str]:
    """Groups, top-level settings and settings of parts; of ``budget`` only those that the compressor has."""
    own = {key for key, _ in paths(config.get("compressor"))}
    for key, _ in paths({name: value for name, value in config.items() if name != "hydra"}):
        group, _, name = key.partition(".")
        if "._" not in f".{key}" and (group != "budget" or not name or name in own):
            yield key
