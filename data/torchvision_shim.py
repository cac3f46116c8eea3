"""Workaround for ``import torchvision`` with a torch build for which it was not compiled.

With a CPU build of torch, the compiled part of torchvision from a package index often does not load.
``import torchvision`` (and transformers' image code) then fails with "operator torchvision::nms does not
exist", although this project does not use that operator. Declaring the signatures of the missing
operators before the first import is enough for datasets, transforms and models. If the compiled part
loads, nothing is declared. Import this module before torchvision.
"""

import importlib.util
from pathlib import Path

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def _compiled_part_loads() -> bool:
    package = importlib.util.find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        return True  # torchvision is not installed: its import will fail with a clear error
    folder = Path(next(iter(package.submodule_search_locations)))
    libraries = [*folder.glob("_C*.so"), *folder.glob("_C*.pyd")]
    try:
        for library in libraries:
            torch.ops.load_library(str(library))
    except OSError:
        return False
    return bool(libraries)


LIBRARY = None if _compiled_part_loads() else torch.library.Library("torchvision", "FRAGMENT")
if LIBRARY is not None:
    for schema in _SCHEMAS:
        LIBRARY.define(schema)
