"""One part of `make gpu` in its own process; it writes the rows of its tables as lines of a file.

python -m benchmarks.gpu.part NAME --rows FILE [--device cuda|cpu] [--quick] [--seconds 60]
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name

from benchmarks.gpu.parts import PARTS


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PARTS)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args(words)
    ends = time.monotonic() + arguments.seconds
    os.environ.pop("TRITON_INTERPRET", None)  # Triton reads it at its import
    if arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from benchmarks.gpu.measuring import Options

    device = torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # like run.py
    torch.manual_seed(0)
    with arguments.rows.open("a", encoding="utf-8") as file:

        def record(table: str, /, **row: object) -> None:
            file.write(json.dumps({"table": table, **row}) + "\n")
            file.flush()

        resolve_name(PARTS[arguments.name].entry)(Options(device, arguments.quick, ends), record)


if __name__ == "__main__":
    main()
