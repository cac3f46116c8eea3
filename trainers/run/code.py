"""Digest of the code that can change a result: this project's packages, and those that a config names."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from trainers.config.targets import modules_named
from trainers.files.plain import Config
from trainers.files.working_tree import PACKAGES

ROOT = Path(__file__).parents[2]


def digest_of_code(config: Config, root: Path = ROOT) -> str:
    """Digest of names and contents of all Python files, committed or not: 32 hexadecimal digits.

    The files are those of ``PACKAGES`` in ``root``, and of installed packages whose code ``config`` names. A
    changed comment also changes the digest.
    """
    folders = [root / name for name in PACKAGES]
    for module in sorted({name.partition(".")[0] for name in modules_named(config)} - set(PACKAGES)):
        spec = find_spec(module)
        if spec is not None and spec.submodule_search_locations:
            folders += map(Path, spec.submodule_search_locations)
        elif spec is not None and spec.origin:
            folders.append(Path(spec.origin))
    digest = hashlib.blake2b(digest_size=16)
    for folder in folders:
        files = [folder] if folder.is_file() else sorted(filter(Path.is_file, folder.rglob("*.py")))
        for file in files:
            content = file.read_bytes()
            name = f"{folder.name}/{file.relative_to(folder).as_posix()}"
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()
