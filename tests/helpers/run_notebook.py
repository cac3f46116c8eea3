"""Script that runs the code cells of a notebook in one namespace: run_notebook.py NOTEBOOK FOLDER.

The working directory is FOLDER. The last line of output has the label and the number of points of every line
in the open figures. A cell that begins with %%writefile FILE is written to this file.
"""

import json
import os
import sys
from pathlib import Path

WRITE = "%%writefile "  # Jupyter's magic


def main(notebook: Path, folder: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    os.chdir(folder)
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells, 1):
        source = "".join(cell["source"])
        if source.startswith(WRITE):
            name, _, text = source.removeprefix(WRITE).partition("\n")
            Path(name).write_text(text)
        elif cell["cell_type"] == "code":
            exec(compile(source, f"{notebook.name}[{number}]", "exec"), namespace)
    from matplotlib import pyplot

    drawn = [line for number in pyplot.get_fignums() for line in pyplot.figure(number).axes[0].lines]
    print("drawn:", *(f"{line.get_label()}={len(line.get_xdata())}" for line in drawn))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
