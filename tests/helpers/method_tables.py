"""The tables of methods in the docs, written from the methods and their yamls.

python tests/helpers/method_tables.py     # updates the tables in docs/methods.md and docs/gpu.md
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import yaml

from compressors.api import Codec
from compressors.kernels.choice import chosen
from contract.cases import communicator_for, configured, reduce_once, reducer_of

ROOT = Path(__file__).parents[2]
SIZE, WORKERS = 10_000, 4  # of the reduction whose bytes are in the table


def methods() -> Iterator[tuple[Path, Any]]:
    for path in sorted((ROOT / "conf/compressor").glob("*.yaml")):
        yield path, configured(path, {}, density=0.01)


def table_of_methods() -> str:
    rows = [
        "| `compressor=` | what a worker sends | paper | unbiased | kB | feedback | settings |",
        "|---|---|---|---|---:|---|---|",
    ]
    for path, method in methods():
        source = f"../{type(method).__module__.replace('.', '/')}.py"
        unbiased = "yes" if method.traits.unbiased or method.traits.lossless else ""
        cells = [f"[`{path.stem}`]({source})", said(path), paper(path, method), unbiased]
        cells += [f"{bytes_sent(method) / 1000:.1f}", f"`{method.usual_feedback}`", settings(path, method)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def said(path: Path) -> str:
    """The first sentence of a yaml's comment."""
    comment = re.match(r"(?:#.*\n)+", path.read_text())
    assert comment, path
    return re.split(r"(?<=\.)\s|\.$", comment[0].replace("# ", "").replace("\n", " "))[0].rstrip(". ")


def paper(path: Path, method: Any) -> str:
    """The first reference with a link, in the yaml's comment or else in the file's docstring."""
    text = path.read_text() + (inspect.getdoc(inspect.getmodule(type(method))) or "")
    plain = re.sub(r'"[^"]*",? ', "", text.replace("\n# ", " ").replace("\n", " "))
    found = re.search(
        r"([A-Z][\w-]+(?: [A-Z]\w+)?(?:, [A-Z][^.;(]*?| et al\.| and [^.;(]*?)?,[^.;(]*?\d{4}),? (https://\S+[\w])",
        plain,
    )
    return f"[{found[1]}]({found[2]})" if found else ""


def bytes_sent(method: Any) -> float:
    """Bytes that a worker sends of a normally distributed layer of deviation 0.02."""
    reducer = reducer_of(method, SIZE)
    communicator = communicator_for(reducer, WORKERS)
    rows = 0.02 * torch.randn(WORKERS, SIZE, generator=torch.Generator().manual_seed(0))
    with chosen("reference"):  # the bytes are the same, and no kernel is compiled
        reduce_once(reducer, rows, communicator=communicator)
    return float(communicator.take_charges().sum() / WORKERS)


def settings(path: Path, method: Any) -> str:
    """The settings of the method; those with a key of their own by this key."""
    values = yaml.safe_load(path.read_text())
    keys = [str(values.get(f.name, "")) for f in fields(method) if not f.name.startswith("_")]
    own = [
        key[2:-1] if key.startswith("${") else f.name for key, f in zip(keys, fields(method), strict=False)
    ]
    return ", ".join(f"`{key}`" for key in own if key != "budget.schedule")


def table_of_waits() -> str:
    rows = ["| method | compiled kernels | `kernels=reference` |", "|---|---|---|"]
    rows.append(f"| any other, at most | {Codec.waits[0]} | {Codec.waits[1]} |")
    for path, method in methods():
        kernels, reference, when = method.waits
        if method.waits != Codec.waits:
            rows.append(f"| `{path.stem}`{when and f', {when}'} | {kernels} | {reference} |")
    return "\n".join(rows)


TABLES = {"docs/methods.md": table_of_methods, "docs/gpu.md": table_of_waits}


def parts(page: str) -> tuple[str, str, str]:
    """The text before a page's generated table, the table, and the text after it."""
    text = (ROOT / page).read_text()
    begin, end = "<!-- tests/helpers/method_tables.py writes this table -->\n\n", "\n\n<!-- end -->"
    before, found, rest = text.partition(begin)
    table, closed, after = rest.partition(end)
    assert found and closed, page
    return before + found, table, closed + after


if __name__ == "__main__":
    for page, table in TABLES.items():
        before, _, after = parts(page)
        (ROOT / page).write_text(before + table() + after)
