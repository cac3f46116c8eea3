"""Archive of a study's finished runs, so that another machine continues the study or rebuilds its page.

`python -m results archive NAME` writes the runs of `make NAME` to results/pages/NAME/runs.tar.xz: config,
environment, records and summary of each, without checkpoints. The records keep only the metrics that the page
reads. Runs whose curves the page does not read, such as pilots, keep only the last record. With --unpack the
runs are written below --root, where `make NAME` finds them finished. Run folders that exist there are kept as
they are. A finished study, whose code has been deleted, can only be unpacked.
"""

import argparse
import hashlib
import io
import json
import lzma
import sys
import tarfile
from pathlib import Path, PurePosixPath

from results.command import in_a_line, parser, writing_over
from results.read.folders import run_folders
from results.studies.catalogue import STUDIES, load
from results.studies.kit import PAGES, ROOT, Study
from trainers.files.files import CONFIG, ENVIRONMENT, RECORDS, SUMMARY, read_records, read_summary

FILES = (CONFIG, ENVIRONMENT, RECORDS, SUMMARY)


def main(arguments: list[str] | None = None) -> int:
    own = parser("archive", __doc__ or "")
    archived = {path.parent.name for path in (ROOT / PAGES).glob("*/runs.tar.xz")}
    names = sorted({*STUDIES, *archived})
    own.add_argument("name", metavar="NAME", choices=names, help=f"a study: {', '.join(names)}")
    own.add_argument("--unpack", action="store_true", help="write the archive's runs below --root")
    own.add_argument(
        "--root", type=Path, default=Path("outputs"), help="where the sweeps' outputs are (default: outputs)"
    )
    own.add_argument("--file", type=Path, metavar="FILE", help="another archive")
    options = own.parse_args(sys.argv[1:] if arguments is None else arguments)
    path = options.file or ROOT / PAGES / options.name / "runs.tar.xz"
    return in_a_line(lambda: _work(path, options))


def _work(path: Path, options: argparse.Namespace) -> None:
    if options.unpack:
        print(f"{unpack(path, options.root)} runs written to {options.root}")
    elif options.name in STUDIES:
        print(f"{pack(load(options.name), options.root, path)} runs in {path}")
    else:
        raise ValueError(f"the study {options.name} is finished: its archive can only be unpacked")


def pack(study: Study, root: Path, path: Path) -> int:
    """Write the finished runs of ``study`` below ``root`` to the archive ``path``; return their number.

    Equal runs give equal bytes. Raises ``FileNotFoundError`` if there is no finished run, and ``ValueError``
    if the present archive has runs that are not below ``root``.
    """
    folders = (run for output in outputs_of(study, root) for run in run_folders(output))
    runs = sorted(run for run in folders if (run / SUMMARY).is_file())
    page_outputs = study.outputs or (study.name,)
    if not runs:
        raise FileNotFoundError(f"no finished run of {study.name} below {root}")
    if lost := _runs_in(path) - {run.relative_to(root).as_posix() for run in runs}:
        raise ValueError(
            f"{path} has {len(lost)} runs that are not below {root}: unpack it there, or remove it, first"
        )
    with writing_over(path) as place, tarfile.open(place, "w:xz") as archive:
        for run in runs:
            kept = contents_of(run, study.curves if run.relative_to(root).parts[0] in page_outputs else ())
            for name, content in kept.items():
                entry = tarfile.TarInfo((run / name).relative_to(root).as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return len(runs)


def unpack(path: Path, root: Path) -> int:
    """Write the runs of an archive below ``root``, except existing ones; return the number of runs written.

    A run folder gets its name after all its files are written. Raises ``ValueError``, and writes nothing, for
    a damaged archive and for one with anything other than files of run folders.
    """
    contents: dict[PurePosixPath, dict[str, bytes]] = {}
    try:
        with lzma.open(path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for entry in archive:
                place = PurePosixPath(entry.name)
                is_ours = place.name in FILES and len(place.parts) == 4 and ".." not in place.parts
                own = archive.extractfile(entry) if is_ours and entry.isfile() else None
                if own is None or place.is_absolute():
                    raise ValueError(f"{path}: {entry.name!r} is not a file of a run folder")
                contents.setdefault(place.parent, {})[place.name] = own.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{path}: {error}") from None
    written = 0
    for place, files in contents.items():
        folder = root / place
        if folder.exists():
            continue
        partial = folder.with_name(f".{folder.name}.partial")
        partial.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (partial / name).write_bytes(content)
        partial.replace(folder)
        written += 1
    return written


def _runs_in(path: Path) -> set[str]:
    """The folders of the runs in an archive; empty if it is missing or damaged."""
    try:
        with tarfile.open(path, "r:xz") as archive:
            return {name.rpartition("/")[0] for name in archive.getnames()}
    except (FileNotFoundError, tarfile.TarError, lzma.LZMAError, EOFError):
        return set()


def contents_of(run: Path, curves: tuple[str, ...] | None = None) -> dict[str, bytes]:
    """The contents of a run's files by name.

    Records keep step, epoch and the metrics whose names begin with one of ``curves``; the last record keeps
    all metrics. If ``curves`` is empty, only the last record is kept. None keeps all records as they are.
    """
    contents = {name: (run / name).read_bytes() for name in FILES if (run / name).is_file()}
    if curves is None:
        return contents
    summary = read_summary(run)
    *others, last = read_records(run, summary).splitlines(keepends=True) or [b""]
    shortened = [_with(record, ("step", "epoch", *curves)) for record in others] if curves else []
    contents[RECORDS] = b"".join([*shortened, last])
    summary["checksums"][RECORDS] = hashlib.blake2b(contents[RECORDS]).hexdigest()
    contents[SUMMARY] = json.dumps(summary, indent=2, allow_nan=False).encode()
    return contents


def _with(record: bytes, starts: tuple[str, ...]) -> bytes:
    kept = {name: value for name, value in json.loads(record).items() if name.startswith(starts)}
    return json.dumps(kept).encode() + b"\n"


def outputs_of(study: Study, root: Path) -> set[Path]:
    """The study's output folders: those of its page's runs, and others named NAME_*, such as its pilots.

    Folders of another study, whose runs the page reads as well, are left to the archive of that study.
    """
    names = set(study.outputs or (study.name,)) | {path.name for path in root.glob(f"{study.name}_*")}
    return {root / name for name in names if owner_of(name) in (None, study.name)}


def owner_of(output: str) -> str | None:
    """The study whose name an output folder has or begins with; the longest if there are several."""
    names = [name for name in STUDIES if output == name or output.startswith(f"{name}_")]
    return max(names, key=len, default=None)
