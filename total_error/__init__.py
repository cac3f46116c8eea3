"""Gradient compression for your own training script.

    state = total_error.compress(ddp_model, "hard_threshold", density=0.001, feedback="ef")

These names are public: docs/api.md says how they may change. ``total_error.api`` has the names for writing
a method, and ``total_error.testing`` has the contract: the tests that every method must pass. The command
``total-error`` runs the laboratory.
"""

from total_error import _checkout  # noqa: F401  # before the first import of the laboratory

__version__ = "0.2.0"  # pyproject.toml reads it

# isort: split
from total_error.script import *  # noqa: F403
from total_error.script import __all__  # noqa: F401
