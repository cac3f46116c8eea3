"""The page of the main job: run.py's defaults with four methods, three seeds, one process.

The statements on the page are computed from the numbers.
"""

import statistics
from collections.abc import Sequence

from results.command import paragraph
from results.compare.joint_intervals import confidence, joint_interval
from results.compare.measures import LINK_BYTES, costs, num_parameters, qualities, require_several_workers
from results.compare.statistics import WITHOUT_INTERVAL
from results.read.matching import by_key, by_setting
from results.read.naming import asked, lambda_in_force
from results.read.run import Run
from results.studies.kit import (
    Option,
    Seeds,
    Study,
    differences,
    every_run,
    first_of,
    line,
    require_compressors,
)

ORDER = ("none", "hard_threshold", "top_k", "random_block")
# Largest accepted difference of runs on another processor, by method: points of accuracy, and a factor of the
# total error. tests/results/studies/test_main_page.py checks it.
SPREAD = {"none": (2.5, 1.0), "hard_threshold": (2.5, 1.2), "top_k": (2.5, 1.5), "random_block": (30.0, 4.0)}
ACCURACY, ERROR, BYTES = "test/accuracy", "compression/total_error", LINK_BYTES

Methods = dict[str, Seeds]  # by compressor, in ORDER


def methods_of(runs: Sequence[Run]) -> Methods:
    """Runs by method and seed; empty without runs.

    Raises ``ValueError`` for runs of several settings or processes, for other methods than the page's, and
    for runs of one worker.
    """
    if not runs:
        return {}
    require_several_workers(runs)
    found: Methods = {name: {} for name in ORDER}
    several = {run.config.get("processes", 1) for run in runs} | {
        run.environment.get("processes", 1) for run in runs
    }
    if several != {1}:
        raise ValueError(
            f"runs of this page must be of one process, got {max(several)}: an all-reduce rounds by it"
        )
    if len(by_setting(runs)) != 1:
        raise ValueError("runs of this page must differ in method and seed alone")
    require_compressors(runs, ORDER)
    found |= by_key(runs, lambda run: run.compressor)
    missing = [name for name, seeds in found.items() if not seeds]
    if missing:
        raise ValueError(f"runs must be of {', '.join(ORDER)}, got none of {', '.join(missing)}")
    return found


def page(runs: Sequence[Run], other_loops: Sequence[Run]) -> str:
    """Markdown; ``other_loops`` are the same runs restricted to AVX2 instructions, or empty."""
    methods, others = methods_of(runs), methods_of(other_loops)
    parts = [_introduction(methods), _table(methods), _differences(methods), _every_run(methods)]
    parts += [_processors(methods, others), _notes()]
    return "\n".join(parts)


def label_of(run: Run) -> str:
    """The method with its setting."""
    settings = run.config["compressor"]
    if run.compressor == "hard_threshold":
        return f"`hard_threshold`, lambda {lambda_in_force(run):.4g}"
    if run.compressor == "none":
        return "`none`"
    shared = ", shared coordinates" if settings.get("shared_coordinates") else ""
    return f"`{run.compressor}`, {100 * settings['density']:g} %{shared}"


def row_of(run: Run) -> list[str]:
    """A run's numbers with the digits of the page, for comparisons with another run."""
    summary = run.summary
    return [
        f"`{run.compressor}`",
        str(run.seed),
        f"{100 * summary[ACCURACY]:.4f}",
        f"{summary[ERROR]:.10g}",
        f"{summary[BYTES]:.0f}",
    ]


def _introduction(methods: Methods) -> str:
    run = first_of(methods["none"])
    config, trainer, optimizer = run.config, run.config["trainer"], run.config["optimizer"]
    words = f"""ResNet-18 ({num_parameters(run):,} parameters) on scikit-learn's digits (1,438 training and
        359 test images of 8x8; one image is 0.28 points of accuracy), {config["workers"]} workers,
        {trainer["batch_size"]} images per worker and step, {run.summary["step"]} steps ({trainer["epochs"]}
        epochs), SGD with Nesterov momentum {optimizer["momentum"]:g}, cosine from {optimizer["lr"]:g}, error
        feedback in gradient units, {config["scope"]} scope. Numbers are mean ± standard deviation over
        seeds. MB that left a worker are 10^6 bytes over the whole training, if each worker had its own
        machine. MB handed over are those that it gave to collectives. The compression ratio is the bytes that
        would leave a worker without compression, over the bytes that leave it."""
    process = """Every run has one process. Other numbers of processes give the same bits, if
        `trainer.reduction` is `worker_order`, the default. With `all_reduce`, the values of `none` and of
        shared coordinates are added in another order: the last digits change and, after some steps, the
        result."""
    return "\n".join(["# What the main job reaches", "", paragraph(words), paragraph(process)])


def _table(methods: Methods) -> str:
    every = list(every_run(methods))
    measures = [qualities(every)[0], *costs(every)]
    head = ["method", "asked for", "seeds", *(measure.label for measure in measures)]
    lines = [line(head), f"|---|---|---|{'---:|' * len(measures)}"]
    for seeds in methods.values():
        runs = list(seeds.values())
        cells = [
            label_of(runs[0]),
            asked(runs[0]),
            ", ".join(map(str, seeds)),
            *(each.spread(runs) for each in measures),
        ]
        lines.append(line(cells))
    return "\n".join([*lines, "", paragraph(WITHOUT_INTERVAL)])


def _differences(methods: Methods) -> str:
    pairs = [(name, "none") for name in ORDER[1:]] + [("hard_threshold", "top_k")]
    joint = f"[{confidence(len(pairs))} %, for {len(pairs)} looks]"
    lines = [
        line(
            [
                "accuracy",
                "points [95 %, paired]",
                joint,
                "in words",
                "bytes on the link, ratio",
                "total error, ratio",
            ]
        ),
        "|---|---:|---:|---|---:|---:|",
    ]
    accuracy = qualities([first_of(methods["none"])])[0]
    for one, other in pairs:
        values = [100 * value for value in differences(accuracy, methods[one], methods[other])]
        alone, together = joint_interval(values, 1), joint_interval(values, len(pairs))
        bytes_sent, error = (_ratio(methods[one], methods[other], name) for name in (BYTES, ERROR))
        seeds = f"{len(values)} seed{'s' * (len(values) != 1)}"
        word = f"{together.word('higher', 'lower')} ({seeds})"
        cells = [f"`{one}` minus `{other}`", alone.shown(), together.ends(), word]
        lines.append(line([*cells, bytes_sent, error]))
    words = f"""The column "in words" uses the intervals for {len(pairs)} comparisons (Bonferroni), which all
        hold together in at least 95 % of such experiments: "higher" or "lower" if the interval does not
        contain 0. Ratios are ratios of means over seeds. If the ratio of bytes is not 1.00, a difference in
        accuracy can be an effect of the bytes."""
    threshold, top_k = methods["hard_threshold"], methods["top_k"]
    more = _mean(threshold, BYTES) / _mean(top_k, BYTES) - 1
    less = _mean(top_k, ERROR) / _mean(threshold, ERROR)
    said = f"""`hard_threshold` beside `top_k`: {100 * abs(more):.2g} % {"more" if more > 0 else "fewer"}
        bytes, a total error {max(less, 1 / less):.2g} times {"smaller" if less > 1 else "larger"}; in
        accuracy, {together.word("higher", "lower")} ({alone.shown()} points, {seeds})."""
    block = first_of(methods["random_block"])
    density = block.config["compressor"]["density"]
    visits = f"""A random block of {100 * density:g} % needs {1 / density:.0f} steps or more to visit every
        coordinate once; these runs have {block.summary["step"]}."""
    return "\n".join(["## Differences", "", *lines, "", *map(paragraph, (words, said, visits))])


def _every_run(methods: Methods) -> str:
    lines = [
        line(["method", "seed", "test accuracy, %", "total error", "bytes that left a worker"]),
        "|---|---:|---:|---:|---:|",
    ]
    lines += [line(row_of(run)) for run in every_run(methods)]
    return "\n".join(["## Every run", "", *lines, ""])


def _processors(methods: Methods, others: Methods) -> str:
    words = """oneDNN and torch choose their loops by the processor's instructions, and other loops add in
        another order. The last digits of a gradient therefore depend on the processor, and so do the results
        and the bytes of `hard_threshold`. The bytes of `none`, `top_k` and `random_block` are the same on all
        processors. On the processor above, a repeated run has the same printed digits. On another one, a test
        requires that a run differs from the run of the same method and seed by at most:"""
    lines = [line(["method", "accuracy, points", "total error, factor"]), "|---|---:|---:|"]
    lines += [line([f"`{name}`", f"{points:g}", f"{factor:g}"]) for name, (points, factor) in SPREAD.items()]
    parts = ["## On another processor", "", paragraph(words), *lines, ""]
    if not others:
        return "\n".join(parts)
    words = """The next table has the largest distances over the listed seeds, measured on this processor with
        `ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2`, which restrict oneDNN and torch to the loops of an
        older processor:"""
    head = ["method", "seeds", "accuracy, points", "total error, factor", "bytes"]
    parts += [paragraph(words), line(head), "|---|---|---:|---:|---:|"]
    for name, ours in methods.items():
        both = sorted(ours.keys() & others[name].keys())
        runs = [(ours[seed], others[name][seed]) for seed in both]
        parts.append(line([f"`{name}`", ", ".join(map(str, both)), *distances(runs)]))
    return "\n".join([*parts, ""])


def distances(runs: Sequence[tuple[Run, Run]]) -> list[str]:
    """The largest distances of accuracy, total error and bytes over pairs of one method and seed."""
    if not runs:
        return ["-", "-", "-"]
    points = max(abs(100 * (one.summary[ACCURACY] - other.summary[ACCURACY])) for one, other in runs)
    factor = max(factor_between(one.summary[ERROR], other.summary[ERROR]) for one, other in runs)
    sent = max(abs(other.summary[BYTES] / one.summary[BYTES] - 1) for one, other in runs)
    return [f"{points:.2f}", f"{factor:.3f}", "the same" if sent == 0 else f"{100 * sent:.2g} %"]


def factor_between(one: float, other: float) -> float:
    """The larger over the smaller; 1 of two zeros."""
    small, large = sorted((one, other))
    return 1.0 if small == large else large / small


def _notes() -> str:
    words = """These are results of the default job on one small dataset, with one setting of everything else.
        They do not reproduce the paper, whose runs have 300 epochs on CIFAR. The network starts with
        zero-initialised residual branches (`model.zero_init_residual=true`, the default here)."""
    return "\n".join(["## Limits", "", paragraph(words)])


def _ratio(one: Seeds, other: Seeds, name: str) -> str:
    ours, theirs = _mean(one, name), _mean(other, name)
    if not theirs or not ours:
        return "-"
    return f"{ours / theirs:.3g}" if ours < 0.1 * theirs else f"{ours / theirs:.2f}"


def _mean(seeds: Seeds, name: str) -> float:
    return statistics.fmean(run.summary[name] for run in seeds.values())


STUDY = Study(
    name="main",
    question="What does the main job reach?",
    page=page,
    option=Option(name="--other-loops", help="the same runs with AVX2 loops alone", output="main_avx2"),
)
