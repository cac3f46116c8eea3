"""Names of this project's modules: top-level in a checkout, inside one package in a wheel.

Standard library only, because checks before slow imports use it.
"""

from pathlib import Path

PREFIX = __name__.removesuffix("trainers.names")  # empty in a checkout
RESULTS = "total-error results" if PREFIX else "python -m results"  # the command that reads runs
ROOT = Path(__file__).parents[1]


def full_name(name: str) -> str:
    """The import path of a name in configs and records, such as compressors.top_k.TopK."""
    return PREFIX + name if PREFIX and is_ours(name.partition(".")[0]) else name


def is_ours(module: str) -> bool:
    """Whether a top-level module is one of this project's."""
    return (ROOT / module / "__init__.py").is_file() or (ROOT / f"{module}.py").is_file()
