"""Measurements on a GPU in independent parts: `make gpu`."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  the machine's Python may be older
    raise SystemExit(
        f"error: the project needs Python 3.11, and {sys.executable} is {sys.version.split()[0]}"
    )
