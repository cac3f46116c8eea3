"""Jobs of a sweep: all are composed before the first one, each with the settings that its compressor has."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf

from trainers.files.plain import Config
from trainers.identity.effects import names_none, without_effect
from trainers.launch.sweep_plan import announce

Compose = Callable[[list[str]], Config]
_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
_PARTS = ("compressor", "feedback")
_OWNERS = ("budget", *_PARTS)  # of settings that not every compressor has


@cache  # run.py and ``compose`` both call it
def install() -> None:
    """Make Hydra's sweeper give each job only the settings of its compressor, and run equal jobs once.

    It then composes the jobs of all batches before the first one starts; Hydra itself checks a batch after
    the jobs of earlier batches have run.

    Hydra runs the product of all values. Without this, a sweep over compressors, thresholds and densities
    would fail for each compressor that lacks a setting, or repeat a job for each value without effect.
    """
    sweeper: Any = Plugins.instance().class_name_to_class[_SWEEPER]  # Hydra's own copy of the class
    original = sweeper.get_job_batch

    def get_job_batch(self: Any) -> Sequence[Sequence[str]]:
        found: dict[tuple[str, ...], Config] = {}  # a tenth of a second each, and many jobs ask for the same

        def compose(words: list[str]) -> Config:
            key = tuple(words)
            if key not in found:
                composed = self.hydra_context.config_loader.load_sweep_config(self.config, words)
                with interpolating(composed):
                    found[key] = {
                        part: OmegaConf.to_container(composed[part], resolve=True) for part in _PARTS
                    }
            return found[key]

        if self.batch_index == 0:  # all batches at once: equal jobs may be in different batches
            self.overrides = [jobs_with_own_settings(batch, compose) for batch in self.overrides]
            jobs = [job for batch in self.overrides for job in batch]
            require_composable(jobs, partial(self.hydra_context.config_loader.load_sweep_config, self.config))
            announce(jobs)
        return original(self)

    def validate_batch_is_legal(self: Any, batch: Sequence[Sequence[str]]) -> None:
        """Nothing: ``get_job_batch`` has checked the jobs of all batches."""

    sweeper.get_job_batch = get_job_batch
    sweeper.validate_batch_is_legal = validate_batch_is_legal


@contextmanager
def interpolating(config: DictConfig) -> Iterator[None]:
    """Context manager: ``${hydra:...}`` in a config is resolved by its own section ``hydra``."""
    state = HydraConfig.instance()
    before = state.cfg
    try:
        state.set_config(config)
        yield
    finally:
        state.cfg = before


def require_composable(jobs: Sequence[Sequence[str]], compose: Callable[[list[str]], object]) -> None:
    """Raise ``ConfigCompositionException`` for a job whose words do not make a config, naming the job."""
    for number, job in enumerate(jobs, 1):
        try:
            compose(list(job))
        except HydraException as error:
            where = f"job {number} of {len(jobs)}: {' '.join(job)}"
            raise ConfigCompositionException(f"{error}; {where}") from None


def jobs_with_own_settings(jobs: Sequence[Sequence[str]], compose: Compose) -> list[list[str]]:
    """The jobs of a sweep in order, each with the settings of its compressor only; equal jobs once.

    ``compose`` returns the config of a job's words. A sweep with one compressor is not changed. Raises
    ``ValueError`` for a setting that none of the compressors has.
    """
    if len({_value(job, "compressor") for job in jobs}) < 2:
        return [list(job) for job in jobs]
    known: dict[tuple[str, ...], list[str]] = {}
    found: dict[tuple[str, ...], list[str]] = {}
    typed: dict[str, dict[str, None]] = {}  # key -> its words, in order
    for word in (word for job in jobs for word in job if _is_of_compressor(word)):
        typed.setdefault(_key(word), {})[word] = None
    for job in jobs:
        own = [word for word in job if _is_of_compressor(word)]
        others = [word for word in job if word not in own]
        # With another choice of a group, such as an experiment, the compressor may read other settings.
        case = (*(word for word in others if "." not in _key(word) and _key(word) != "seed"), "and", *own)
        if case not in known:
            known[case] = _taken(own, others, compose, typed)
        words = [word for word in job if word not in own or word in known[case]]
        found.setdefault(tuple(words), words)
    unused = typed.keys() - {_key(word) for words in known.values() for word in words}
    for key in typed:
        if key in unused:
            raise ValueError(f"{key} has no effect with any of the compressors of this sweep")
    return list(found.values())


def _taken(
    own: list[str], others: list[str], compose: Compose, typed: Mapping[str, Iterable[str]]
) -> list[str]:
    """The words in ``own`` that set an existing setting of the job's compressor or feedback, with an effect.

    A setting of the budget may also select the compressor's settings, by an interpolation in a config: it is
    kept if one of its words in ``typed`` changes the compressor.
    """
    choices = [word for word in own if "." not in _key(word)]
    config = compose([*others, *choices])

    def is_read(word: str) -> bool:
        owner, name = _key(word).split(".")[:2]
        if not names_none("feedback" if owner == "feedback" else "compressor", name)(config):
            return True
        return owner == "budget" and any(
            compose([*others, *choices, each]) != config for each in typed[_key(word)]
        )

    there = [word for word in own if word in choices or is_read(word)]
    config = compose([*others, *there])
    kept = []
    for word in there:
        owner, _, name = _key(word).partition(".")
        entry = without_effect(config, f"compressor.{name}" if owner == "budget" else _key(word))
        if entry is None or not entry.is_refused:
            kept.append(word)
    return kept


def _is_of_compressor(word: str) -> bool:
    owner, dot, _ = _key(word).partition(".")
    return owner == "feedback" or (bool(dot) and owner in _OWNERS)


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _value(job: Sequence[str], key: str) -> str | None:
    return next((word.partition("=")[2] for word in job if _key(word) == key), None)
