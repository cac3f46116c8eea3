"""Shapes of the layers that lie one after the other in a segment."""

import math
from functools import lru_cache

import numpy as np

Shapes = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def edges_of(shapes: Shapes) -> np.ndarray:
    """Where layers begin and end, [L + 1] int64; not to be written to."""
    edges = np.zeros(len(shapes) + 1, dtype=np.int64)
    np.cumsum([math.prod(shape) for shape in shapes], out=edges[1:])
    edges.setflags(write=False)
    return edges


@lru_cache(maxsize=4096)
def sizes_of(shapes: Shapes) -> np.ndarray:
    """Elements of each layer, [L] int64; not to be written to."""
    sizes = np.diff(edges_of(shapes))
    sizes.setflags(write=False)
    return sizes
