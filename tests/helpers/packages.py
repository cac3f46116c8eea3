"""Simulated installation of packages: code and a folder of metadata."""

import importlib
import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_compressor"


def write_metadata(folder: Path, name: str, entry_points: str, version: str = "1.0") -> None:
    """Write the metadata of an installed distribution to ``folder``."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (place / "entry_points.txt").write_text(entry_points)
    importlib.invalidate_caches()  # a folder that was read within the same tick of the clock seems unchanged


def install_example(folder: Path) -> None:
    """Install the example package by a link, with the metadata of its pyproject.toml."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    text = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    write_metadata(folder, project["name"], text, project["version"])
    (folder / "my_compressor").symlink_to(EXAMPLE / "my_compressor")


def install(folder: Path, module: str, files: dict[str, str], group: str = "compressors") -> None:
    """Install a distribution with these files in ``module``, and an entry point for this project."""
    for name, text in {"__init__.py": "", **files}.items():
        path = folder / module / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write_metadata(folder, module.replace("_", "-"), f"[total_error.{group}]\nx = {module}\n")
