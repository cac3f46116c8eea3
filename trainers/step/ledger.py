"""The ledger: compression error, elements and bytes of every step, per worker and layer."""

import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.reducer import Reduced, Reducer
from trainers.comm.communicator import Communicator
from trainers.comm.links import all_reduce_bytes
from trainers.comm.nodes import Nodes
from trainers.step.layout import WHOLE, Layout

LARGEST = "largest_link_bytes"  # name of a total that is a maximum; the others are sums
PAPER_BITS = 32  # per exact value of any dtype, without its index, as in the paper


class Counts:
    """Counts of the W local workers, [W, ...] float64 each: exact up to 2^53, and divisible among workers.

    All counts are views of one array, so one operation adds a step to the totals.
    """

    names = (
        *("sent", "exchanges", "bytes", "link_bytes", "dense_bytes"),
        *("choice", "paper_bits", "largest_sent"),
    )

    def __init__(self, num_workers: int, num_layers: int, num_kinds: int) -> None:
        self.all = np.zeros((num_workers, 2 * num_layers + num_kinds + 2 + 4))
        ends = np.cumsum([num_layers, num_layers, num_kinds, 2]).tolist()
        # Exchanges: 1 for each layer that is part of the step, the same in all rows.
        self.sent, self.exchanges, self.bytes, self.link_bytes, rest = np.split(self.all, ends, axis=1)
        # In order: bytes that would have left a worker without compression; the entropy bound in bytes; the
        # paper's bits; elements of the worker that sends the most, the same number in all rows.
        self.dense_bytes, self.choice, self.paper_bits, self.largest_sent = rest.T


class Ledger:
    """Running totals of the local workers, and their means over all n workers.

    The error is measured on the buffer with p - C(p), and never reported by a compressor; bytes are those
    that the communicator charged. The traits of ``reducer`` determine which counts are defined. With
    ``nodes``, whose ``across`` is the communicator, bytes inside the nodes are counted beside them.
    """

    def __init__(
        self, layout: Layout, communicator: Communicator, reducer: Reducer, nodes: Nodes | None = None
    ) -> None:
        self.layout = layout
        self.communicator = communicator
        self.nodes = nodes
        self.steps = 0
        shape = (len(communicator.local_workers), len(layout.names))
        measured = torch.zeros(2, *shape, dtype=torch.float64, device=layout.device)
        totals = torch.zeros_like(measured)
        self.error, self.input_norm = measured  # [W, L] each: ||p - C(p)||^2 and ||p||^2 of this step
        self.total_error, self.total_input_norm = totals
        self._measured, self._totals = _entries(measured), _entries(totals)
        self._error, self._input_norm = _entries(self.error), _entries(self.input_norm)
        self._layers = {name: slice(i, i + 1) for i, name in enumerate(layout.names)}
        if layout.scope == "global":
            self._layers[WHOLE] = slice(0, len(layout.names))
        self.kinds = communicator.kinds
        self.counts, self.total_counts = (Counts(*shape, len(self.kinds)) for _ in range(2))
        # Bytes that would have left a worker without compression, equal in every step.
        self.counts.dense_bytes[:] = all_reduce_bytes(layout.num_bytes, communicator.size)
        self.counts.exchanges[:] = 1
        self.num_exchanged = layout.num_parameters  # elements of the layers in this step
        self.largest_link_bytes = np.zeros(shape[0])  # the most that left a worker in a step so far
        self.input_is_known = False
        # Bytes that left a worker inside its node, of this step and of all, [nodes] each
        self.inside_bytes, self.total_inside_bytes = np.zeros(shape[0]), np.zeros(shape[0])
        # An undefined count is infinite.
        self.traits, self.has_a_value_each = reducer.traits, reducer.has_a_value_each
        self.has_paper_bits = self.traits.exact and self.has_a_value_each
        if not self.has_paper_bits:
            self.counts.paper_bits[:] = self.total_counts.paper_bits[:] = math.inf
        self.has_choice = self.has_a_value_each and not self.traits.drawn_in_part
        if not self.has_choice:
            self.total_counts.choice[:] = math.inf

    def record(self, reduced: Reduced) -> None:
        """Add some or all segments of this step."""
        self.input_is_known = True
        found = reduced.compressed
        # On a GPU, all layers are copied at once: this takes no longer than a copy of one layer.
        at_once = self._error is self.error and list(found) == self.layout.names
        if at_once:
            self.input_norm.copy_(torch.cat([own.input_norm for own in found.values()], 1))
            self.error.copy_(torch.cat([own.error for own in found.values()], 1))
        for segment, own in found.items():
            layers = self._layers[segment]
            self.counts.sent[:, layers] = own.sent
            if not at_once:
                self._input_norm[:, layers] = _entries(own.input_norm)
                self._error[:, layers] = _entries(own.error)

    def declare(self, segment: str, layers: slice) -> None:
        """Also record this segment, which has the layers ``layers``; on a CPU."""
        self._layers[segment] = layers

    def fault(self) -> tuple[int, int] | None:
        """Indices of a local worker and layer with a ||p||^2 that is not finite; None if all are finite."""
        if math.isfinite(self._input_norm.sum()):
            return None
        rows, layers = np.nonzero(~np.isfinite(self.input_norm.cpu().numpy()))
        return (int(rows[-1]), int(layers[rows == rows[-1]][0])) if len(rows) else None

    def close_step(self) -> None:
        """Add the step to the totals after all of its segments have been recorded."""
        self.steps += 1
        step, communicator = self.counts, self.communicator
        step.bytes[:] = communicator.take_charges()
        step.link_bytes[:] = communicator.take_link_bytes()
        np.maximum(self.largest_link_bytes, step.link_bytes[:, 0], out=self.largest_link_bytes)
        if self.nodes is not None:
            self.inside_bytes[:] = self.nodes.take_inside_bytes()
            self.total_inside_bytes += self.inside_bytes
        counts = step.sent.sum(1) if step.sent.shape[1] > 1 else step.sent[:, 0]
        if self.has_paper_bits:
            np.multiply(counts, PAPER_BITS, out=step.paper_bits)
        most = communicator.take_largest_sent()
        # Of a linear method all workers send equally many, also where each of them chose some.
        step.largest_sent[:] = counts if most is None or self.traits.linear else most
        if self.has_choice and not self.traits.drawn:
            step.choice[:] = [_bytes_to_choose(self.num_exchanged, int(k)) for k in counts.tolist()]
            if self.traits.linear:  # one worker sends the positions to the others
                step.choice /= communicator.size
        self._totals += self._measured
        self.total_counts.all += step.all

    def clear_step(self) -> None:
        """Clear the numbers of the last step: before one without some segments, or for one that is skipped.

        A skipped step has no compression and no communication, and is not part of any average.
        """
        self._measured[:] = 0
        step = self.counts
        for counts in (step.sent, step.bytes, step.link_bytes, step.choice, self.inside_bytes):
            counts[:] = 0
        self.input_is_known = False

    def begin_part(self, names: Sequence[str]) -> None:
        """Begin a step that reduces only the layers ``names``."""
        self.clear_step()
        parameters = [self.layout.parameters[name] for name in names]
        own = sum(parameter.nbytes for parameter in parameters)
        self.counts.dense_bytes[:] = all_reduce_bytes(own, self.communicator.size)
        self.counts.exchanges[:] = [name in names for name in self.layout.names]
        self.num_exchanged = sum(parameter.numel() for parameter in parameters)

    def totals(self) -> dict[str, Tensor]:
        """The sums over all steps, and the largest value, [W, ...] float64 each, for reading and writing."""
        inside = {"total_inside_bytes": torch.from_numpy(self.total_inside_bytes)}
        return {
            LARGEST: torch.from_numpy(self.largest_link_bytes),
            "total_error": self.total_error,
            "total_input_norm": self.total_input_norm,
            **{f"total_{name}": torch.from_numpy(getattr(self.total_counts, name)) for name in Counts.names},
            **(inside if self.nodes is not None else {}),
        }

    def metrics(self) -> dict[str, float]:
        """Means over workers of the last step and of all steps, equal on every process.

        The norm of p is included if the last step measured it. The entropy bound and the paper's bits are
        included if they are defined for all payloads so far. All processes call it together.
        """
        return self.metrics_of(self.communicator.collect(self.columns()))

    def columns(self) -> Tensor:
        """What ``metrics`` needs of the local workers, [W, columns] float64; does not wait for a GPU."""
        step, total = self.counts, self.total_counts
        counted = [
            step.sent.sum(1),
            total.sent.sum(1),
            step.bytes.sum(1),
            step.bytes[:, 0] + step.choice,
            total.bytes[:, 0] + total.choice,
            *total.bytes.T,
            *step.link_bytes.T,
            *total.link_bytes.T,
            total.dense_bytes,
            total.paper_bits,
            total.largest_sent,
            *((self.inside_bytes, self.total_inside_bytes) if self.nodes is not None else ()),
            self.largest_link_bytes,
        ]
        measured = torch.stack([own.sum(1) for own in (self.input_norm, self.error, self.total_error)], 1)
        rest = torch.from_numpy(np.stack(counted, 1)).to(measured.device, non_blocking=True)
        return torch.cat([measured, rest], 1)

    def metrics_of(self, everyones: Tensor) -> dict[str, float]:
        """The metrics of the ``columns`` of all n workers, [n, columns]."""
        inside = ("comm/inside_bytes_sent", "comm/inside_bytes_sent_total") if self.nodes is not None else ()
        sizes = [8 + len(self.kinds), 5, 2, len(inside), 1]  # a mean's rounding depends on them
        *of_groups, largest = everyones.cpu().split(sizes, 1)
        means, link, (paper_bits, largest_sent), insides = (
            own.contiguous().mean(0).tolist() for own in of_groups
        )
        sent_now, received_now, sent_so_far, received_so_far, dense = link
        input_norm, error, total_error, sent, total_sent, step_bytes, bound, total_bound, *totals = means
        exchanged = self._exchanged_so_far()
        bounds = {"comm/entropy_bound_bytes": bound, "comm/entropy_bound_bytes_total": total_bound}
        return {
            **({"compression/input_norm_squared": input_norm} if self.input_is_known else {}),
            "compression/error": error,
            "compression/total_error": total_error,
            "compression/density": sent / self.num_exchanged,
            "compression/density_mean": total_sent / exchanged,
            "comm/bytes_sent": step_bytes,
            "comm/bytes_sent_total": sum(totals),
            "comm/link_bytes_sent": sent_now,
            "comm/link_bytes_sent_total": sent_so_far,
            "comm/link_bytes_sent_largest": largest.max().item(),
            "comm/link_bytes_received": received_now,
            "comm/link_bytes_received_total": received_so_far,
            **dict(zip(inside, insides, strict=True)),
            **({"comm/compression_ratio": dense / sent_so_far} if sent_so_far else {}),
            "comm/bits_per_parameter": 8 * sum(totals) / exchanged,
            **({} if math.isinf(total_bound) else bounds),
            **{f"comm/{kind}_bytes_total": v for kind, v in zip(self.kinds, totals, strict=True)},
            **({} if math.isinf(paper_bits) else {"comm/paper_bits_total": paper_bits}),
            **({} if math.isinf(largest_sent) else {"comm/largest_sent_total": largest_sent}),
        }

    def local_density(self) -> float:
        """Average density of the local workers so far; no communication."""
        return float(self.total_counts.sent.sum(1).mean()) / self._exchanged_so_far()

    def _exchanges(self) -> list[int]:
        """Steps so far with each layer; rounded, because a mean over old workers may not be whole."""
        return list(map(round, self.total_counts.exchanges[0].tolist()))

    def _exchanged_so_far(self) -> int:
        """Elements of the layers of all steps so far, at least 1."""
        return max(1, sum(map(operator.mul, self._exchanges(), self.layout.sizes)))

    def link_bytes_sent_total(self) -> float:
        """The metric ``comm/link_bytes_sent_total``, equal on every process."""
        return self._mean(torch.from_numpy(self.total_counts.link_bytes[:, :1].copy()))[0]

    def layers(self) -> dict[str, dict[str, float]]:
        """Per parameter name, means over workers: elements, sums of error and ||p||^2, average density."""
        errors, norms = self._mean(self.total_error.cpu()), self._mean(self.total_input_norm.cpu())
        sent = self._mean(torch.from_numpy(self.total_counts.sent))
        columns = self.layout.names, self.layout.sizes, errors, norms, sent, self._exchanges()
        return {
            name: {
                "elements": size,
                "total_error": error,
                "total_input_norm_squared": norm,
                "density_mean": count / (size * max(1, exchanges)),
            }
            for name, size, error, norm, count, exchanges in zip(*columns, strict=True)
        }

    def _mean(self, table: Tensor) -> list[float]:
        return self.communicator.collect(table).mean(0).tolist()


def _entries(tensor: Tensor) -> Any:
    """The same memory as an array, if possible: for short sums, NumPy avoids torch's call overhead.

    Callers use operations that both types have.
    """
    return tensor.numpy() if tensor.is_cpu else tensor


@lru_cache(maxsize=4096)
def _bytes_to_choose(size: int, k: int) -> float:
    """Lower bound in bytes for a code of k among ``size`` positions: log2 C(size, k) / 8."""
    nats = math.lgamma(size + 1) - math.lgamma(k + 1) - math.lgamma(size - k + 1)
    return max(0.0, nats) / (8 * math.log(2))
