"""Layout of parameters in the flat buffers, and the segments that are compressed together."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from compressors.core.segments import Segment

WHOLE = "model"  # the one segment's name when the whole model is compressed together
SCOPES = ("layer", "global")


class Layout:
    """Parameters in the model's order as a vector of D = ``num_parameters`` elements.

    ``scope="layer"`` makes a segment of every parameter tensor, ``"global"`` one of the whole
    model. Raises ``ValueError`` for another scope, for a model without trainable parameters, for
    one without elements, for a dtype other than a real floating-point one and, unless
    ``several_dtypes``, for parameters of several dtypes: then there is no flat buffer, and ``dtype``
    is that of the first parameter.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], scope: str, *, several_dtypes: bool = False
    ) -> None:
        if scope not in SCOPES:
            raise ValueError(f"scope must be layer or global, got {scope!r}")
        self.parameters = {name: p for name, p in parameters.items() if p.requires_grad}
        dtypes = {p.dtype for p in self.parameters.values()}
        if not dtypes or (len(dtypes) > 1 and not several_dtypes):
            raise ValueError(
                f"the model must have trainable parameters of one dtype, got {sorted(map(str, dtypes))}"
            )
        others = [name for name, p in self.parameters.items() if not p.dtype.is_floating_point]
        if others:
            found = self.parameters[others[0]].dtype
            raise ValueError(
                f"trainable parameters must be real floating-point numbers, got {found} in {others[0]}"
            )
        devices = sorted({str(p.device) for p in self.parameters.values()})
        if len(devices) > 1:
            raise ValueError(f"trainable parameters must be on one device, got {' and '.join(devices)}")
        empty = [name for name, p in self.parameters.items() if p.numel() == 0]
        if empty:  # an empty tensor has no largest element
            raise ValueError(f"every trainable parameter must have elements, got none in {empty[0]}")
        self.scope = scope
        self.names = list(self.parameters)
        self.sizes = [p.numel() for p in self.parameters.values()]
        self.num_parameters = sum(self.sizes)
        self.num_bytes = sum(p.nbytes for p in self.parameters.values())  # of a gradient
        self.shapes = tuple(tuple(p.shape) for p in self.parameters.values())
        first = next(iter(self.parameters.values()))
        self.dtype, self.device = first.dtype, first.device

    def new_buffer(self, num_workers: int, *, aligned: bool = False) -> Tensor:
        """A zeroed buffer for gradients, [W, D].

        With ``aligned`` and segments of one layer each, 16 divides the addresses of all rows: a GPU's kernels
        then read 16 bytes at a time. Up to 15 bytes after each row are unused.
        """
        per_load = 16 // self.dtype.itemsize if aligned and self.scope == "layer" else 1
        length = -(-self.num_parameters // per_load) * per_load
        buffer = torch.zeros(num_workers, length, dtype=self.dtype, device=self.device)
        return buffer[:, : self.num_parameters]

    def segments(self, flat: Tensor) -> list[Segment]:
        """Views of ``flat`` [W, D], one segment per parameter, or one for the whole model."""
        if self.scope == "global":
            return [Segment(WHOLE, flat, self.shapes, [p.detach() for p in self.parameters.values()])]
        rows = flat.split(self.sizes, dim=1)
        return [self.segment_of(name, r) for name, r in zip(self.names, rows, strict=True)]

    def segment_of(self, name: str, rows: Tensor) -> Segment:
        """The segment of the one parameter ``name``, [W, d]."""
        own = self.parameters[name]
        return Segment(name, rows, (tuple(own.shape),), [own.detach()])

    def views(self, row: Tensor) -> list[Tensor]:
        """Views of ``row`` [D] in the parameters' shapes."""
        pieces = row.split(self.sizes)
        return [v.view_as(p) for v, p in zip(pieces, self.parameters.values(), strict=True)]

    def write_gradients(self, mean: Mapping[str, Tensor]) -> None:
        """Set every parameter's ``.grad`` to its part of the mean, a view if possible; None without one."""
        gradients: list[Tensor | None]
        if self.scope == "global":
            gradients = [*self.views(mean[WHOLE])]
        else:
            gradients = [
                mean[name].view_as(p) if name in mean else None for name, p in self.parameters.items()
            ]
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient
