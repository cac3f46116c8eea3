"""Helpers for reducers with several rounds: layers by name, means of tensors, and the result."""

import torch
from torch import Tensor

from compressors.core.codec import Compressed
from compressors.core.communicator import Communicator
from compressors.core.reducer import Reduced
from compressors.core.segments import Input, Segment
from compressors.kernels.choice import backend_of


def layers_of(segments: list[Segment]) -> dict[str, Tensor]:
    """Views [W, *shape] of all layers, by segment and number."""
    return {f"{s.name}/{i}": layer for s in segments for i, layer in enumerate(s.layers())}


def mean_of(rows: dict[str, Tensor], communicator: Communicator) -> dict[str, Tensor]:
    """The mean over all n workers of each of ``rows`` [W, ...], in one all-reduce; ``rows`` are not
    changed."""
    if not rows:
        return {}
    means = communicator.all_reduce_mean([own.flatten(1).clone() for own in rows.values()])
    return {name: mean.view(own.shape[1:]) for (name, own), mean in zip(rows.items(), means, strict=True)}


def begin(inputs: list[Input]) -> tuple[list[Segment], list[Tensor]]:
    """The segments that hold p, and ||p||^2 of their layers, [W, L] float64 each."""
    segments = [given.formed() for given in inputs]
    return segments, backend_of(segments[0].rows.device).squared_norms(segments)


def end(segments: list[Segment], means: dict[str, Tensor], norms: list[Tensor]) -> Reduced:
    """The result of a method whose payloads represent every element.

    ``segments`` must hold p - C(p). ``means`` has the means of segments, [d], or of all their layers.
    """
    mean, compressed = {}, {}
    errors = backend_of(segments[0].rows.device).squared_norms(segments)
    for segment, norm, error in zip(segments, norms, errors, strict=True):
        name, count = segment.name, len(segment.shapes)
        whole = [means[name]] if name in means else [means[f"{name}/{i}"].flatten() for i in range(count)]
        mean[name] = torch.cat(whole) if len(whole) > 1 else whole[0]
        compressed[name] = Compressed(segment.num_elements, error, norm)
    return Reduced(mean, {segment.name: segment.rows for segment in segments}, compressed)
