"""A study's page, tables and figures, from the runs of its sweeps.

Without OUTPUT the runs are those of `python -m sweeps NAME`, below --root, and page, tables and figures go
to results/pages/NAME. With OUTPUT, folders with such runs, the page is printed and figures go to
OUTPUT/figures, unless --table and --figures name other places.
"""

import argparse
import sys
from pathlib import Path

from results import header
from results.command import in_a_line, parser
from results.figures import saving
from results.studies.engine import of_folder
from results.studies.kit import PAGES, ROOT, Study, make

STUDIES = tuple(sorted(path.parent.name for path in (ROOT / PAGES).glob("*/study.yaml")))


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    named = words[0] if words and not words[0].startswith("-") else None
    if named is None:
        if not {"-h", "--help"} & set(words):
            print(f"error: a study's name comes first; there are {', '.join(STUDIES)}", file=sys.stderr)
            return 2
        general = parser("study", f"{__doc__}\nStudies:\n{_questions()}")
        general.add_argument("name", metavar="NAME", help="python -m results study NAME --help: its options")
        add_options(general)
        general.parse_args(["--help"])
        return 0
    if named not in STUDIES:
        print(f"error: no study {named!r}; there are {', '.join(STUDIES)}", file=sys.stderr)
        return 2
    study = load(named)
    own = parser(f"study {named}", f"{study.question}\n\n{__doc__.partition(chr(10))[2].strip()}")
    add_options(own, study)
    options = own.parse_args(words[1:])
    return in_a_line(lambda: _work(study, options))


def _work(study: Study, options: argparse.Namespace) -> None:
    if study.train is not None:
        study.train.run(options)
    make(study, options)


def load(name: str) -> Study:
    return of_folder(ROOT / PAGES / name)


def add_options(own: argparse.ArgumentParser, study: Study | None = None) -> None:
    own.add_argument("output", nargs="*", type=Path, metavar="OUTPUT", help="folders with runs of the study")
    own.add_argument(
        "--root", type=Path, default=Path("outputs"), help="where the sweeps' outputs are (default: outputs)"
    )
    own.add_argument("--table", type=Path, metavar="FILE", help="write the page here")
    own.add_argument("--figures", type=Path, metavar="DIR", help="write the figures here")
    saving.add_option(own)
    header.add_option(own)
    if study is not None and (extra := study.option) is not None:
        kind = {"choices": extra.choices} if extra.choices else {"type": Path, "metavar": "FOLDER"}
        own.add_argument(extra.name, help=extra.help, **kind)
    if study is not None and study.train is not None:
        study.train.add_options(own)


def _questions() -> str:
    return "".join(f"  {name:17} {load(name).question}\n" for name in STUDIES)
