"""Workaround for ``import torchvision`` with a build of torch for which it was not compiled.

A CPU build of torch and the torchvision of a package index often disagree, so that torchvision's
compiled part does not load. ``import torchvision``, and with it transformers' image code, then dies
on "operator torchvision::nms does not exist", although nothing here uses that operator. Declaring
the missing operators' signatures before the first import is enough for datasets, transforms and
models. Where the compiled part loads, nothing is declared. Import this module before torchvision.
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
        return True  # not installed: let the import say so
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
