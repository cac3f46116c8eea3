"""Private names of the laboratory's packages, which cannot collide with folders of a user.

A wheel has the folders of this repository below ``total_error/_lab``. Their sources import each other by the
private names ``total_error._lab.*``, which ``setup.py`` writes with ``renamed``. A checkout has the folders
at its top. If Python finds other packages by these names, such as a user's own ``data`` or ``trainers``,
``Finder`` loads the laboratory's folders by the private names. Standard library only, because this module is
used where torch is not installed.
"""

import ast
import importlib.util
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

OWN = Path(__file__).resolve().parent
PACKAGE = OWN.name
LAB = f"{PACKAGE}._lab"
FOLDERS = ("compressors", "contract", "data", "models", "results", "trainers")
MODULES = ("run",)


def renamed(source: str) -> str:
    """``source`` with private names in all imports of the laboratory's modules; line numbers do not change.

    Raises ``ValueError`` for ``import trainers.x`` without ``as`` if the code uses this name.
    """
    edits = []
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module or ""):
            edits.append((node.lineno, node.col_offset, r"from\s+"))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if not _is_ours(alias.name):
                    continue
                if alias.asname is None and _is_used(alias.name, tree):
                    raise ValueError(f"line {node.lineno}: write from ... import, or as, for {alias.name}")
                edits.append((alias.lineno, alias.col_offset, ""))
    lines = source.splitlines(keepends=True)
    for number, column, words in sorted(edits, reverse=True):
        line = lines[number - 1].encode()  # columns count bytes
        before, rest = line[:column].decode(), line[column:].decode()
        lines[number - 1] = before + re.sub(f"^({words})", rf"\g<1>{LAB}.", rest)
    return "".join(lines)


def _is_used(name: str, tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and ast.unparse(node) == name for node in ast.walk(tree))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in (*FOLDERS, *MODULES)


class Loader(SourceFileLoader):
    """Loads a source of a checkout with private names, without the bytecode cache of the public name."""

    def path_stats(self, path: str) -> dict[str, float]:
        raise OSError("no file of compiled code")

    def source_to_code(self, data: Any, path: str, *, _optimize: int = -1) -> CodeType:
        text = importlib.util.decode_source(data) if isinstance(data, bytes) else data
        return super().source_to_code(renamed(text), path, _optimize=_optimize)


class Finder(MetaPathFinder):
    """Finds modules of ``total_error`` in a checkout; those of ``total_error._lab`` are at its top."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{PACKAGE}."):
            return None
        is_lab = f"{fullname}.".startswith(f"{LAB}.")
        parts = fullname.removeprefix(LAB if is_lab else PACKAGE).split(".")[1:]
        place = (OWN.parent if is_lab else OWN).joinpath(*parts)
        if fullname == LAB:
            spec = ModuleSpec(LAB, None, is_package=True)
            spec.submodule_search_locations = [str(place)]
            return spec
        if is_lab and parts[0] not in (*FOLDERS, *MODULES):
            return None
        file = place / "__init__.py" if (place / "__init__.py").is_file() else place.with_suffix(".py")
        if not file.is_file():
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=Loader(fullname, str(file)))


def claim() -> None:
    """Make the laboratory's modules importable, also if the user has packages of the same names."""
    if (OWN / "_lab").is_dir():  # a wheel, whose files have the private names
        return
    if all(_leads_here(name) for name in FOLDERS):
        return
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def _leads_here(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made by hand has no spec
        return False
    return spec is not None and spec.origin == str(OWN.parent / name / "__init__.py")
