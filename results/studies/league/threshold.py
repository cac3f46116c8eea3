"""The league's section on the hard threshold and Top-k: paired differences at every budget."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from results.command import paragraph
from results.compare.joint_intervals import joint_interval
from results.compare.measures import LINK_BYTES, Measure
from results.escaping import in_markdown
from results.read.run import Run
from results.studies.kit import Seeds, differences, first_of, table
from results.studies.league import scores
from results.studies.league.scores import TaskRuns, quality_of
from results.studies.league.tasks import TUNING_SEED
from results.studies.league.trials import short_overrides, trial_of

WORDS = """The threshold's quality minus that of Top-k of each layer, by seed, with a 95 % interval for each
    row alone and with intervals for all rows together (Bonferroni); the bytes that left a worker, threshold
    over Top-k; and total error, Top-k over threshold. The bytes differ where no setting of a method comes
    closer to the budget, or where a setting sends other bytes with the compared seeds than with the tuning
    seed."""
OTHER_BYTES = 0.1  # differences in bytes between seeds that are said, as a share


class Pair(NamedTuple):
    """The compared runs of both methods at one budget."""

    task: str
    share: int
    quality: Measure
    threshold: Seeds
    top_k: Seeds


def threshold_and_top_k(found: Sequence[TaskRuns], tried: Sequence[Run]) -> str:
    """A table of the paired differences, and the settings whose bytes depend on the seed."""
    pairs = [
        Pair(one.task, share, quality_of(one), methods["hard_threshold"], methods["top_k"])
        for one in found
        for share, methods in one.by_share.items()
        if "hard_threshold" in methods and "top_k" in methods
    ]
    title = f"## Threshold and Top-k\n\n{paragraph(WORDS)}\n"
    if not pairs:
        return title + "No task has both.\n"
    head = ["task", "budget", "quality", "threshold minus Top-k", f"for all {len(pairs)} together"]
    shown = table([*head, "bytes", "total error"], [_row(pair, len(pairs)) for pair in pairs], words=3)
    said = [_of_other_seed(pair, own, tried) for pair in pairs for own in (pair.threshold, pair.top_k)]
    return title + shown + "".join(f"\n{paragraph(words)}" for words in said if words)


def _row(pair: Pair, number: int) -> list[object]:
    ours, theirs = pair.threshold, pair.top_k
    quality = pair.quality
    by_seed = differences(quality, ours, theirs)
    intervals = [joint_interval(by_seed, count) for count in (1, number)]
    more, less = (
        fmean(run.summary["compression/total_error"] for run in own.values()) for own in (theirs, ours)
    )
    return [
        pair.task,
        f"dense/{pair.share}",
        quality.label,
        *(quality.difference(found.mean, found.low, found.high, found.seeds) for found in intervals),
        f"{scores.mean_bytes_sent(ours) / scores.mean_bytes_sent(theirs):.2f}",
        f"{more / less:.2f}" if less else "-",
    ]


def _of_other_seed(pair: Pair, own: Seeds, tried: Sequence[Run]) -> str:
    """The bytes and the quality of a setting with the tuning seed; empty if it sent about as many bytes."""
    trial = trial_of(first_of(own).config)
    tuning = [
        run
        for run in tried
        if replace(trial_of(run.config), share=trial.share) == replace(trial, seed=TUNING_SEED)
    ]
    here = scores.mean_bytes_sent(own)
    if not tuning or abs(here / tuning[0].summary[LINK_BYTES] - 1) <= OTHER_BYTES:
        return ""
    before = tuning[0].summary[LINK_BYTES]
    setting = f"{short_overrides(trial.knob)} lr={trial.rate:.4g}"
    reached = pair.quality.spread(list(own.values()))
    return f"""{pair.task}, dense/{pair.share}: `{trial.method}` with `{setting}` sent {here / 1e6:.3g} MB
        with the compared seeds, mean, and {before / 1e6:.3g} MB with the tuning seed. Its quality
        ({in_markdown(pair.quality.label)}) is {reached}, and with the tuning seed
        {pair.quality.spread(tuning)}."""
