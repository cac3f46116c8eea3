"""No compression: dense data-parallel SGD, the baseline of every comparison."""

from dataclasses import dataclass

from torch import Tensor

from compressors.api import Communicator, Compressed, Input, Reduced, Reducer, State, Step, Traits, backend_of


@dataclass(frozen=True, kw_only=True)
class NoCompression(Reducer):
    """Averages the whole gradients of all workers by one all-reduce.

    Lossless; bytes per element: those of the dtype. It is a reducer and not a codec, because a codec would
    copy every gradient once more.
    """

    traits = Traits(linear=True, drawn=True, lossless_at={})

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        segments = [given.formed() for given in inputs]
        norms = backend_of(segments[0].rows.device).squared_norms(segments)
        means = communicator.all_reduce_mean([segment.rows for segment in segments], add_up)
        # The residuals are always 0, so each needs one element only: not one for all, because a wrapper may
        # keep and change the residual of a segment of one element. All are made by one launch on a GPU.
        residuals = segments[0].rows.new_zeros(len(segments), 1, 1)
        error = norms[0].new_zeros(1, 1)
        mean, left, compressed = {}, {}, {}
        for segment, own, norm, residual in zip(segments, means, norms, residuals, strict=True):
            mean[segment.name] = own
            left[segment.name] = residual.expand_as(segment.rows)
            compressed[segment.name] = Compressed(segment.num_elements, error.expand_as(norm), norm)
        return Reduced(mean, left, compressed), state


def add_up(rows: Tensor) -> Tensor:
    """The sum [k] of rows [m, k], in the order of torch's sum."""
    return rows.sum(0) if rows.shape[0] > 1 else rows[0]
