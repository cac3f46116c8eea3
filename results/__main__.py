"""Command line of results: ``python -m results COMMAND``."""

import importlib
import sys

from trainers.launch.stopping import stop_with_starter

COMMANDS = {  # name: module of this package with a function ``main``, one line of help
    "table": (".tables.methods_table", "methods side by side; or tidy files, or one run's traffic"),
    "figures": (".figures.kinds", "figures of any set of runs, as PNG or also PDF"),
    "report": (".report.sweep_report", "one HTML page about a sweep; or a report at Weights & Biases"),
    "budget": (".compare.budget", "the threshold that sends as many bytes as Top-k, or the reverse"),
    "breakeven": (".predicted_steps", "predicted steps of methods over a network, and the fastest"),
    "study": (".studies.catalogue", "a study's page, tables and figures"),
    "archive": (".archive", "a study's finished runs in one file, and back"),
    "deltas": (".deltas", "what a lossless delta between two checkpoints would save"),
}
EXTRAS = {  # package that these commands import: extras of pyproject.toml to install
    **dict.fromkeys(("hydra", "omegaconf", "pandas", "pydantic", "rich", "scipy", "yaml"), "lab,results"),
    **dict.fromkeys(("jinja2", "matplotlib", "plotly", "pyarrow", "statsmodels"), "results"),
    **dict.fromkeys(("wandb", "wandb_workspaces"), "tracking"),
}
HELP = (
    "usage: python -m results COMMAND ...\n\nTables, figures, reports and studies of run folders.\n\n"
    + "".join(f"  {name:9} {said}\n" for name, (_, said) in COMMANDS.items())
    + "\npython -m results COMMAND --help lists the options of a command.\n"
)


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in COMMANDS:
        stop_with_starter()  # such as python -m sweeps, for a budget
        try:
            return importlib.import_module(COMMANDS[words[0]][0], __package__).main(words[1:])
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRAS:
                raise
            install = f"pip install -e '.[{EXTRAS[package]}]'"
            print(f"error: results needs {package}, which is not installed: {install}", file=sys.stderr)
            return 1
    if words and words[0] in ("-h", "--help"):
        print(HELP, end="")
        return 0
    said = f"no command {words[0]!r}" if words else "a command is missing"
    print(f"error: {said}; there are {', '.join(COMMANDS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
