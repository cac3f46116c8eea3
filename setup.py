"""Build of the wheel: ``total_error``, with the folders of this repository below ``total_error/_lab``."""

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "total_error"))  # importing the package needs torch, which a build lacks

from _names import FOLDERS, MODULES, renamed  # noqa: E402

LEFT_OUT = ("__pycache__", "pages")  # results/pages has figures, which only the repository shows
KEPT = ("study.yaml", "page.md.j2")  # of results/pages: what a study is


class BuildLab(build_py):
    """Copies the laboratory's folders; imports get the private names. An editable install copies nothing."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib) / "total_error"
        for file in package.glob("*.py"):
            file.write_text(renamed(file.read_text(encoding="utf-8")), encoding="utf-8")
        lab = package / "_lab"
        shutil.rmtree(lab, ignore_errors=True)  # files of an earlier build
        for source, name in self._lab_files():
            target = lab / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.suffix == ".py":
                target.write_text(renamed(source.read_text(encoding="utf-8")), encoding="utf-8")
            else:
                shutil.copyfile(source, target)
        (lab / "__init__.py").write_text('"""The laboratory: the folders of its repository."""\n')

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        lab = Path(self.build_lib) / "total_error" / "_lab"
        own = [str(lab / name) for _, name in self._lab_files()]
        return [*super().get_outputs(include_bytecode), *own, str(lab / "__init__.py")]

    def _lab_files(self) -> list[tuple[Path, Path]]:
        """Files of the repository, and their names below the laboratory's package."""
        files = [ROOT / f"{name}.py" for name in MODULES]
        for folder in FOLDERS:
            files += [path for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
        for place, _, found in os.walk(ROOT / "conf", followlinks=True):  # conf/sweeps is a link
            files += [Path(place, name) for name in sorted(found) if name.endswith(".yaml")]
        names = [(file, file.relative_to(ROOT)) for file in files]
        return [
            (file, name) for file, name in names if name.name in KEPT or not set(LEFT_OUT) & set(name.parts)
        ]


setup(cmdclass={"build_py": BuildLab})
