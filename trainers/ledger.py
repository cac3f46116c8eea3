"""The ledger: compression error, elements and bytes of every step, per worker and layer."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.api import Reduced, Reducer
from trainers.comm.communicator import Communicator
from trainers.comm.links import all_reduce_bytes
from trainers.layout import WHOLE, Layout

PAPER_BITS = 32  # per exact value, whatever its dtype and without its index: as the paper counts


class Ledger:
    """Running totals of the local workers; means over all n workers when asked.

    The error is measured on the buffer that holds p - C(p), by who has just written it, never reported by a
    compressor; bytes are those the communicator charged. Which counts have a meaning follows from what
    ``reducer`` promises.
    """

    def __init__(self, layout: Layout, communicator: Communicator, reducer: Reducer) -> None:
        self.layout = layout
        self.communicator = communicator
        self.steps = 0
        shape = (len(communicator.local_workers), len(layout.names))
        self.error = torch.zeros(shape, dtype=torch.float64, device=layout.device)  # [W, L], this step
        self.total_error = torch.zeros_like(self.error)
        self._error, self._total_error = _entries(self.error), _entries(self.total_error)
        self._layers = {name: self._find(name) for name in (WHOLE, *layout.names)}
        self.sent = np.zeros(shape, dtype=np.int64)  # [W, L], this step
        # Totals are float64: counts stay exact up to 2^53, and a change of workers can split them.
        self.total_sent = np.zeros(shape)
        self.input_norm = torch.zeros_like(self.error)  # [W, L], ||p||^2 of this step
        self._input_norm = _entries(self.input_norm)
        self.input_is_known = False
        self.kinds = communicator.kinds
        self.bytes = np.zeros((shape[0], len(self.kinds)), dtype=np.int64)  # [W, kinds], this step
        self.total_bytes = np.zeros(self.bytes.shape)
        self.link_bytes = np.zeros((shape[0], 2))  # [W, 2], sent and received, this step
        self.total_link_bytes = np.zeros_like(self.link_bytes)
        self.total_dense_bytes = np.zeros(shape[0])  # that would have left a worker without compression
        gradient_bytes = layout.num_parameters * layout.dtype.itemsize
        self._dense_bytes = all_reduce_bytes(gradient_bytes, communicator.size)  # in a step
        # A count that has no meaning for what is sent is infinite.
        self.traits, self.has_a_value_each = reducer.traits, reducer.has_a_value_each
        self._no_choice = np.zeros(shape[0])
        self.choice = self._no_choice  # [W] bytes, this step: no code of which entries are sent takes less
        self.total_choice = np.zeros(shape[0])
        self.total_paper_bits = np.zeros(shape[0])
        self.total_largest_sent = np.zeros(shape[0])  # the same for all workers

    def record(self, reduced: Reduced) -> None:
        """Enter some or all segments of this step."""
        self.input_is_known = True
        found = reduced.compressed
        # Of all layers at once on a GPU, where a copy of one takes as long as of all.
        at_once = self._error is self.error and list(found) == self.layout.names
        if at_once:
            self.input_norm.copy_(torch.cat([own.input_norm for own in found.values()], 1))
            self.error.copy_(torch.cat([own.error for own in found.values()], 1))
        for segment, own in found.items():
            layers = self._layers[segment]
            self.sent[:, layers] = own.sent
            if not at_once:
                self._input_norm[:, layers] = _entries(own.input_norm)
                self._error[:, layers] = _entries(own.error)

    def fault(self) -> tuple[int, int] | None:
        """The local worker and the layer, by their positions, of which ||p||^2 is not finite in this step."""
        if math.isfinite(self._input_norm.sum()):
            return None
        rows, layers = np.nonzero(~np.isfinite(self.input_norm.cpu().numpy()))
        return (int(rows[-1]), int(layers[rows == rows[-1]][0])) if len(rows) else None

    def _find(self, segment: str) -> slice:
        """Which layers a segment has."""
        if segment == WHOLE and self.layout.scope == "global":
            return slice(0, len(self.layout.names))
        first = self.layout.names.index(segment) if segment in self.layout.names else 0
        return slice(first, first + 1)

    def close_step(self) -> None:
        """Add the step to the totals, once all of its segments are entered."""
        self.steps += 1
        self.bytes = self.communicator.take_charges()
        self.link_bytes = self.communicator.take_link_bytes()
        self.total_link_bytes += self.link_bytes
        self.total_dense_bytes += self._dense_bytes
        self._total_error += self._error
        self.total_sent += self.sent
        self.total_bytes += self.bytes
        counts = self.sent.sum(1) if self.sent.shape[1] > 1 else self.sent[:, 0]
        self.total_paper_bits += PAPER_BITS * counts if self.traits.exact else math.inf
        most = self.communicator.take_largest_sent()
        self.total_largest_sent += counts if most is None else most
        self.choice = self._no_choice
        if not self.has_a_value_each or self.traits.drawn_in_part:
            self.choice = np.full_like(self._no_choice, math.inf)
        elif not self.traits.drawn:
            size = self.layout.num_parameters
            self.choice = np.array([_bytes_to_choose(size, k) for k in counts.tolist()])
            if self.traits.linear:  # one worker tells the others
                self.choice /= self.communicator.size
        self.total_choice += self.choice

    def skip_step(self) -> None:
        """Enter a step in which nothing was compressed and nothing sent; it counts in no average."""
        self.error.zero_()
        self.sent[:] = 0
        self.bytes = np.zeros_like(self.bytes)
        self.link_bytes = np.zeros_like(self.link_bytes)
        self.choice = self._no_choice
        self.input_is_known = False

    def totals(self) -> dict[str, Tensor]:
        """The sums over all steps, [W, ...] float64 each, as they are: to be read or written."""
        return {
            "total_error": self.total_error,
            "total_sent": torch.from_numpy(self.total_sent),
            "total_bytes": torch.from_numpy(self.total_bytes),
            "total_link_bytes": torch.from_numpy(self.total_link_bytes),
            "total_dense_bytes": torch.from_numpy(self.total_dense_bytes),
            "total_choice": torch.from_numpy(self.total_choice),
            "total_paper_bits": torch.from_numpy(self.total_paper_bits),
            "total_largest_sent": torch.from_numpy(self.total_largest_sent),
        }

    def metrics(self) -> dict[str, float]:
        """Means over workers of the last step and of all steps; the same on every process.

        The norm of what was compressed is there if the last step measured it. A bound on the bytes, and what
        the paper counts, are there if they have a meaning for all that was sent.
        """
        columns = [
            self.input_norm.sum(1).cpu(),
            self.error.sum(1).cpu(),
            self.total_error.sum(1).cpu(),
            self.sent.sum(1),
            self.total_sent.sum(1),
            self.bytes.sum(1),
            self.bytes[:, 0] + self.choice,
            self.total_bytes[:, 0] + self.total_choice,
            *self.total_bytes.T,
        ]
        link = [*self.link_bytes.T, *self.total_link_bytes.T, self.total_dense_bytes]
        as_published = [self.total_paper_bits, self.total_largest_sent]
        means, link, (paper_bits, largest_sent) = self._means(columns, link, as_published)
        sent_now, received_now, sent_so_far, received_so_far, dense = link
        input_norm, error, total_error, sent, total_sent, step_bytes, bound, total_bound, *totals = means
        size = self.layout.num_parameters
        bounds = {"comm/entropy_bound_bytes": bound, "comm/entropy_bound_bytes_total": total_bound}
        return {
            **({"compression/input_norm_squared": input_norm} if self.input_is_known else {}),
            "compression/error": error,
            "compression/total_error": total_error,
            "compression/density": sent / size,
            "compression/density_mean": total_sent / (size * max(1, self.steps)),
            "comm/bytes_sent": step_bytes,
            "comm/bytes_sent_total": sum(totals),
            "comm/link_bytes_sent": sent_now,
            "comm/link_bytes_sent_total": sent_so_far,
            "comm/link_bytes_received": received_now,
            "comm/link_bytes_received_total": received_so_far,
            **({"comm/compression_ratio": dense / sent_so_far} if sent_so_far else {}),
            "comm/bits_per_parameter": 8 * sum(totals) / (size * max(1, self.steps)),
            **({} if math.isinf(total_bound) else bounds),
            **{f"comm/{kind}_bytes_total": v for kind, v in zip(self.kinds, totals, strict=True)},
            **({} if math.isinf(paper_bits) else {"comm/paper_bits_total": paper_bits}),
            **({} if math.isinf(largest_sent) else {"comm/largest_sent_total": largest_sent}),
        }

    def layers(self) -> dict[str, dict[str, float]]:
        """Per parameter name, means over workers: elements, total error and average density."""
        errors = self._mean(self.total_error.cpu())
        sent = self._mean(torch.from_numpy(self.total_sent))
        steps = max(1, self.steps)
        return {
            name: {"elements": size, "total_error": error, "density_mean": count / (size * steps)}
            for name, size, error, count in zip(
                self.layout.names, self.layout.sizes, errors, sent, strict=True
            )
        }

    def _means(self, *groups: Sequence[Tensor | np.ndarray]) -> list[list[float]]:
        """Means over all workers of columns [W]. The bits of a mean depend on the size of its group."""
        columns = [torch.as_tensor(column, dtype=torch.float64) for group in groups for column in group]
        everyones = self.communicator.collect(torch.stack(columns, 1))  # [n, columns]
        of_groups = everyones.split([len(group) for group in groups], 1)
        return [group.contiguous().mean(0).tolist() for group in of_groups]

    def _mean(self, table: Tensor) -> list[float]:
        return self.communicator.collect(table).mean(0).tolist()


def _entries(tensor: Tensor) -> Any:
    """The same memory as an array where that can be had: of short sums numpy is done first.

    What is done with it is written alike for both.
    """
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


@lru_cache(maxsize=4096)
def _bytes_to_choose(size: int, k: int) -> float:
    """No code of all sets of k among ``size`` elements takes less: log2 C(size, k) / 8."""
    nats = math.lgamma(size + 1) - math.lgamma(k + 1) - math.lgamma(size - k + 1)
    return max(0.0, nats) / (8 * math.log(2))
