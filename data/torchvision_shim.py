"""Workaround for ``import torchvision`` with a torch build for which it was not compiled.

With a CPU build of torch, the compiled part of torchvision from a package index often does not load.
``import torchvision`` (and with it transformers' ``Trainer``) then fails with "operator torchvision::nms
does not exist". Declaring the signatures of the missing operators is enough for datasets, transforms and
models. Once this module is imported, that is done right before the first import of torchvision, and only if
the compiled part does not load.

    python data/torchvision_shim.py        # installs a copy, which every start of this Python imports

Other modules are imported by the functions, because the copy delays every start: 0.2 ms.
"""

import sys

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
kept: list[object] = []  # operators last as long as the object that declares them


class BeforeTorchvision:
    """A finder that finds nothing, and is asked first."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(cls)
            declare_missing()


def declare_missing() -> None:
    """Declare the operators of torchvision, unless its compiled part does."""
    import importlib.util
    from pathlib import Path

    import torch

    package = importlib.util.find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        return  # its import will fail with a clear error
    folder = Path(next(iter(package.submodule_search_locations)))
    try:
        for compiled in (*folder.glob("_C*.so"), *folder.glob("_C*.pyd")):
            torch.ops.load_library(str(compiled))
    except OSError:
        pass  # then the operators are missing
    if not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in SCHEMAS:
            library.define(schema)
        kept.append(library)


def install(folder: str) -> None:
    """Copy this file to ``folder``, a site-packages, with a .pth file that imports it at every start."""
    from pathlib import Path

    Path(folder, "torchvision_shim.py").write_bytes(Path(__file__).read_bytes())
    Path(folder, "torchvision_shim.pth").write_text("import torchvision_shim\n")


if __name__ == "__main__":
    import sysconfig

    install(sysconfig.get_path("purelib"))
else:
    sys.meta_path.insert(0, BeforeTorchvision)
