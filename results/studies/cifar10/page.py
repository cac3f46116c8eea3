"""The page of CIFAR-10: accuracy, error and bytes of each method, and the effects of other settings.

Cells of methods without a finished run say so. The statements are computed from the runs that exist.
"""

import statistics
from collections.abc import Mapping, Sequence

from results.command import paragraph
from results.compare.measures import LINK_BYTES, num_parameters
from results.read.run import Run
from results.studies.cifar10.cells import (
    ACCURACY,
    BYTES,
    COSTS,
    LOSS,
    NOT_RUN,
    accuracy,
    cost,
    minus,
    rows_of,
    shown,
)
from results.studies.cifar10.comparison import NEAR, in_words, table_of
from results.studies.cifar10.failures import failures
from results.studies.cifar10.figures import FIGURES, figures
from results.studies.cifar10.places import (
    ACCORDION,
    NONE,
    PARTITIONS,
    SECTIONS,
    THREE,
    WORKERS,
    Methods,
    by_section,
    labels_of,
    missing,
)
from results.studies.kit import Option, Seeds, Study, first_of, notes, paired, table

INTRODUCTION = """Written by `python -m results study cifar10` from the runs of `make cifar10`. ResNet-20 on
    all of CIFAR-10{setting}. The learning rate was chosen for `none` alone, by runs with another seed, and
    every method has it. Ten epochs were planned; for want of time, only [the first methods](#ten-epochs) have
    them."""
READING = """Accuracies are those of the last weights, mean and Student's 95 % interval; others are mean ±
    standard deviation over seeds. Differences are paired over seeds, with the same interval. MB are 10^6
    bytes that left a worker over the whole training, were each a machine of its own, indices and counts
    included. Total error is the sum over all steps of ||p - C(p)||^2, where p is a worker's gradient plus
    what error feedback has kept of earlier ones, and C(p) what is sent of p. Gap is the squared norm of what
    the optimizer has not been given at the end, regret how much larger the total error is than the least for
    the run's own p with as many elements sent: [docs/ledger.md](../../../docs/ledger.md). Methods work on
    each layer unless they say whole model."""
TITLES = {
    "main": "The comparison",
    "ten epochs": "Ten epochs",
    "neighbours": "Methods of other papers",
    "stepped": "ACCORDION, with a rate that falls in steps",
    "feedback": "Without error feedback",
    "shards": "Shards that differ",
    "workers": "Workers",
    "precision": "bf16 and fp32",
    "resnet18": "ResNet-18, on a GPU",
    "rates": "The learning rate",
}


def page(runs: Sequence[Run], tried: Sequence[Run]) -> str:
    """Markdown: a section per question. ``tried``: runs with the learning rates tried."""
    found = by_section(runs)
    main = found["main"]
    words = [paragraph(INTRODUCTION.format(setting=_setting(main))), paragraph(READING)]
    parts = ["# CIFAR-10", "", *words, _absent(found)]
    parts += [_main(found), _ten_epochs(found), _neighbours(found), _stepped(found), _feedback(found)]
    parts += [_shards(found), _workers(found), _precision(found), _resnet18(found), _rates(tried)]
    parts += [_failed(runs), _cost([*runs, *tried])]
    return "\n".join([*parts, notes(runs)])


def _setting(main: Methods) -> str:
    """The settings of the first run of the main comparison, as text; empty without runs."""
    if not main:
        return ""
    run = first_of(next(iter(main.values())))
    config, trainer = run.config, run.config["trainer"]
    return (
        f" ({num_parameters(run):,} parameters), {config['workers']} workers of {trainer['batch_size']} "
        f"images a step, {trainer['epochs']:g} epochs of 50,000 images ({run.summary['step']:,} steps), "
        f"{trainer['precision']} forward passes"
    )


def _absent(found: Mapping[str, Methods]) -> str:
    """A sentence on the number of rows with a finished run; empty if no row lacks one."""
    number = sum(len(missing(section, methods)) for section, methods in found.items())
    rows = sum(map(len, SECTIONS.values()))
    return paragraph(f"{rows - number} of the {rows} rows have a finished run.") if number else ""


def _main(found: Mapping[str, Methods]) -> str:
    main = found["main"]
    words = in_words({"main": main, "neighbours": found["neighbours"]}, main)
    drawn = "".join(f"![{said}]({stem}.png)\n\n" for stem, said in FIGURES.items() if stem != "workers")
    shown = drawn if len(main) > 1 else ""
    note = f"""Beside Top-k: the difference to the Top-k of the same scope whose bytes are nearest, where
        they are within {100 * NEAR:g} %, and how many times its bytes were sent. A threshold selects the same
        entries in both scopes: the whole model saves the layers' counts alone. Rows of either scope have the
        layers' number first where the two differ. **Random blocks were not tested at a suitable rate**: they
        have that of `none`, and lower ones were not tried."""
    return (
        f"## {TITLES['main']}\n\n{table_of('main', main, main)}\n{paragraph(note)}\n{words}\n{shown}".rstrip()
        + "\n"
    )


def _ten_epochs(found: Mapping[str, Methods]) -> str:
    longer = found["ten epochs"]
    note = """The first methods of the comparison, with trainings and a cosine of twice the length. The
        learning rate is the same. Thresholds were chosen anew by bytes alone, by pilots of ten epochs with
        another seed."""
    words = in_words({"ten epochs": longer}, longer)
    shown = table_of("ten epochs", longer, longer)
    return f"## {TITLES['ten epochs']}\n\n{shown}\n{paragraph(note)}\n{words}".rstrip() + "\n"


def _neighbours(found: Mapping[str, Methods]) -> str:
    note = """Each with its paper's settings, at the learning rate of `none`: others may suit them better. DGC
        starts at its final density, without the warm-up of its paper, and has a momentum of its own. **EF21
        was not tested at a suitable rate**: lower ones were not tried."""
    shown = table_of("neighbours", found["neighbours"], found["main"])
    return f"## {TITLES['neighbours']}\n\n{shown}\n{paragraph(note)}"


def _stepped(found: Mapping[str, Methods]) -> str:
    methods = found["stepped"]
    head = ["method", "seeds", ACCURACY.label, "minus none", "ACCORDION minus it"]
    head += [measure.label for measure in COSTS]

    def cells(label: str, own: Seeds) -> list[str]:
        ours = methods.get(ACCORDION) if label != ACCORDION else None
        return [
            accuracy(own),
            minus(own, methods.get(NONE)) if label != NONE else "-",
            shown(paired(ACCURACY, ours, own)) if ours else "-",
            *(cost(measure, own) for measure in COSTS),
        ]

    note = """ACCORDION sends its higher density wherever the rate has fallen since the epoch before, so it is
        refused under a cosine. These runs have the same peak rate, which falls to a tenth after epochs 3 and
        4.5; it was not tuned for this schedule."""
    rows = rows_of(labels_of("stepped", methods), methods, head, cells)
    return f"## {TITLES['stepped']}\n\n{rows}\n{paragraph(note)}"


def _feedback(found: Mapping[str, Methods]) -> str:
    head = ["method", "seeds", ACCURACY.label, "minus the same with feedback", *(c.label for c in COSTS)]

    def cells(label: str, own: Seeds) -> list[str]:
        other = found["main"].get(label)
        return [accuracy(own), minus(own, other), *(cost(measure, own) for measure in COSTS)]

    note = """The threshold is that of the runs with feedback, so its bytes are others without."""
    shown = rows_of(labels_of("feedback", found["feedback"]), found["feedback"], head, cells)
    return f"## {TITLES['feedback']}\n\n{shown}\n{paragraph(note)}"


def _shards(found: Mapping[str, Methods]) -> str:
    head = ["shards", "method", "seeds", ACCURACY.label, "minus iid shards", "minus none", "minus Top-k"]
    head += [BYTES.label, COSTS[1].label]
    rows = []
    for section, said in {"main": "iid", **PARTITIONS}.items():
        methods = found[section]
        for label in THREE:
            own = methods.get(label)
            if own is None:
                rows.append([said, label, "-", NOT_RUN, *["-"] * (len(head) - 4)])
                continue
            iid = found["main"].get(label) if section != "main" else None
            cells = [said, label, ", ".join(map(str, own)), accuracy(own), minus(own, iid)]
            cells.append(minus(own, methods.get(NONE)) if label != NONE else "-")
            cells.append(minus(own, methods.get(THREE[1])) if label == THREE[2] else "-")
            rows.append([*cells, BYTES.spread(list(own.values())), COSTS[1].spread(list(own.values()))])
    note = """The threshold is the same for all shards: what it sends follows from the gradients. **Shards by
        label and by Dirichlet shares are not a test of compression here**: without it, the network hardly
        trains on them either."""
    return f"## {TITLES['shards']}\n\n{table(head, rows, words=2)}\n{paragraph(note)}"


def _workers(found: Mapping[str, Methods]) -> str:
    head = ["workers", "steps", "rate"]
    names = [label.partition(",")[0] for label in THREE]
    head += [f"{measure.label.partition(',')[0]}: {name}" for measure in (LOSS, ACCURACY) for name in names]
    head += [f"{BYTES.label}: {name}" for name in names[1:]]
    rows, has_run = [], False
    for number in WORKERS:
        methods = found[f"workers {number}"]
        if not methods:
            rows.append([number, "-", "-", NOT_RUN, *["-"] * (len(head) - 4)])
            continue
        has_run = True
        run = first_of(next(iter(methods.values())))
        peak = run.config["optimizer"]["lr"] * run.config["schedule"]["peak"]
        cells: list[object] = [number, f"{run.summary['step']:,}", f"{peak:g}"]
        for measure in (LOSS, ACCURACY):
            cells += [accuracy(methods[label], measure) if label in methods else NOT_RUN for label in THREE]
        cells += [cost(BYTES, methods[label]) if label in methods else NOT_RUN for label in THREE[1:]]
        rows.append(cells)
    note = """Every row has read the same 100,000 images, 16 for each worker and step, at a peak rate in
        proportion to the workers. Where n workers speed up training n times, as theory says of long
        trainings, a column has the same loss in all rows. These are two epochs of CIFAR-10: whatever differs
        may be their shortness or the rate as well. The threshold is the same in all rows, and its bytes are
        not those of Top-k."""
    figure = f"![{FIGURES['workers']}](workers.png)\n" if has_run else ""
    return "\n".join([f"## {TITLES['workers']}", "", table(head, rows), paragraph(note), figure])


def _precision(found: Mapping[str, Methods]) -> str:
    bf16, fp32 = found["main"].get(NONE), found["precision"].get(NONE)
    head = ["forward passes", "seeds", ACCURACY.label, LOSS.label, "fp32 minus bf16", "hours a run"]
    rows: list[list[object]] = []
    for said, own in (("bf16", bf16), ("fp32", fp32)):
        if own is None:
            rows.append([said, "-", NOT_RUN, "-", "-", "-"])
            continue
        difference = minus(own, bf16) if said == "fp32" else "-"
        hours = statistics.fmean(run.summary["wall_seconds"] for run in own.values()) / 3600
        rows.append(
            [said, ", ".join(map(str, own)), accuracy(own), accuracy(own, LOSS), difference, f"{hours:.2f}"]
        )
    note = """`none`, all else equal. Hours are those of the clock, on a machine with other work."""
    return f"## {TITLES['precision']}\n\n{table(head, rows)}\n{paragraph(note)}"


def _resnet18(found: Mapping[str, Methods]) -> str:
    note = """`python run.py -m +sweeps=cifar10_resnet18` and `+sweeps=cifar10_resnet18_accordion`: the
        paper's model, batch, 8 workers of 256 images, and warm-up of five epochs; then its schedule with
        every length divided by fifteen: 20 epochs in all, the rate divided by 10 after 10 and 16 2/3 of them,
        and for ACCORDION a choice after each epoch."""
    short = """The same with 15 epochs, the rate divided by 10 after 7.5 and 12.5, and a warm-up of one epoch,
        to a rate of 1.6 in 24 steps: the two sweeps of version cf079bc2a7, on an H100, a minute and a half to
        four minutes a run with four to eight side by side. **`none` hardly trains**: after 30 steps its
        training loss is that of a guess, ln 10 = 2.303, and at the end its test losses are 2.18 and 2.29. No
        run of a method ended above 34 %, so nothing can be told of the methods from this. Two of the twelve
        runs were cut off by the end of the time on the GPU."""
    return "\n".join(
        [
            f"## {TITLES['resnet18']}\n\n{_rows_of_resnet18('resnet18', found)}\n{paragraph(note)}",
            "### With too short a warm-up\n",
            f"{_rows_of_resnet18('resnet18, short warm-up', found)}\n{paragraph(short)}",
        ]
    )


def _rows_of_resnet18(section: str, found: Mapping[str, Methods]) -> str:
    methods = found[section]
    head = ["method", "seeds", ACCURACY.label, "minus none", *(measure.label for measure in COSTS)]

    def cells(label: str, own: Seeds) -> list[str]:
        difference = minus(own, methods.get(NONE)) if label != NONE else "-"
        return [accuracy(own), difference, *(cost(measure, own) for measure in COSTS)]

    return rows_of(labels_of(section, methods), methods, head, cells)


def _rates(tried: Sequence[Run]) -> str:
    """A section on the runs from which the learning rate was chosen."""
    rows = []
    for run in sorted(tried, key=lambda run: run.config["optimizer"]["lr"]):
        peak = run.config["optimizer"]["lr"] * run.config["schedule"]["peak"]
        own = {run.seed: run}
        rows.append([f"{peak:g}", str(run.seed), accuracy(own), accuracy(own, LOSS)])
    head = ["peak rate", "seed", ACCURACY.label, LOSS.label]
    shown = table(head, rows) if rows else paragraph("None.")
    return f"## {TITLES['rates']}\n\n{shown}"


def _failed(runs: Sequence[Run]) -> str:
    """A section on runs that ended with an error, in the output folders of ``runs``."""
    shown = failures({run.path.parents[1] for run in runs})
    return f"## Runs that failed\n\n{shown or paragraph('None.')}"


def _cost(runs: Sequence[Run]) -> str:
    hours = sum(run.summary["wall_seconds"] for run in runs) / 3600
    words = f"{len(runs)} runs, {hours:.1f} hours by the clock in all, often beside other work."
    return f"## Cost\n\n{paragraph(words)}"


STUDY = Study(
    name="cifar10",
    question="What do the methods reach with ResNet-20 on CIFAR-10, with how much error and how many bytes?",
    page=page,
    figures=figures,
    needs=(LINK_BYTES, "test/accuracy"),
    option=Option(name="--rates", help="folder with the runs of the rates tried", output="cifar10_rates"),
)
