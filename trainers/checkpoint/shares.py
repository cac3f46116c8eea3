"""The rule by which the tensors of n workers become those of m workers."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from trainers.step.ledger import LARGEST

Parts = Sequence[tuple[int, Fraction]]  # an old worker, and its fraction of the new worker's part


def shares(new: int, num_new: int, num_old: int) -> Iterator[tuple[int, Fraction]]:
    """Pairs of an old worker and the fraction that it covers of the new worker's part; they sum to 1.

    An interval is divided into n equal parts, one per old worker, and into m equal parts, one per new worker.
    """
    start, stop = Fraction(new, num_new), Fraction(new + 1, num_new)
    for worker in range(num_old):
        overlap = min(stop, Fraction(worker + 1, num_old)) - max(start, Fraction(worker, num_old))
        if overlap > 0:
            yield worker, overlap * num_new


def merged(name: str, parts: Parts, of_worker: Mapping[int, Tensor]) -> Tensor:
    """A new worker's tensor ``name``: the largest of the old ones if it is a maximum, otherwise ``blend``."""
    if name == f"ledger/{LARGEST}":
        return torch.stack([*of_worker.values()]).amax(0)
    return blend(parts, of_worker)


def blend(parts: Parts, of_worker: Mapping[int, Tensor]) -> Tensor:
    """The mean of the old workers' tensors over a new worker's part; for integers (steps), the minimum."""
    first = of_worker[parts[0][0]]
    if first.is_complex():
        pairs = {worker: torch.view_as_real(tensor) for worker, tensor in of_worker.items()}
        return torch.view_as_complex(blend(parts, pairs))
    if not first.is_floating_point():
        return torch.stack([of_worker[worker] for worker, _ in parts]).amin(0)
    total = sum(of_worker[worker].double() * float(share) for worker, share in parts)
    return torch.as_tensor(total).to(first.dtype)
