"""The ratio xi of Assumption 1: how far compression of the mean is from the mean of the compressed vectors.

Alistarh et al., "The convergence of sparsified gradient methods", NeurIPS 2018,
https://arxiv.org/abs/1809.10505: ||TopK(mean_p a_p) - mean_p TopK(a_p)|| <= xi ||alpha G|| with a_p = e_p +
alpha g_p and G the mean gradient. Workers select by their own entries; a single worker with the mean input
would select other entries. For a small xi, n workers are close to this single worker, which the theory
analyses.

Here C is the run's method, applied per segment, over all n workers. Under feedback.scale=gradient a_p = e_p +
g_p, and the ratio is relative to ||G||; without feedback e_p = 0.
"""

from dataclasses import dataclass

from compressors.api import Input, Reduced, Reducer, Step
from compressors.core.compress import Compress
from compressors.kernels.choice import backend_of
from trainers.diagnostics.step_input import StepInput, norm_of

_ONE = range(1)  # a single worker with the mean input


@dataclass(frozen=True)
class Xi:
    """One number per measured step. Cost: a pass over gradients and residuals, and C on one vector of D
    elements."""

    def require_codec(self, reducer: Reducer) -> None:
        """Raise ``ValueError`` unless the method is one lossy, deterministic function C."""
        traits, method = reducer.traits, reducer.innermost
        has_codec = isinstance(method, Compress) and not traits.individual and not traits.relays
        if traits.lossless or traits.seeded or not has_codec:
            raise ValueError(
                "diagnostics=xi needs a compressor that selects by magnitude, such as top_k or "
                "hard_threshold: for others C(mean) is a new random draw or equal to mean C(p), or C is not "
                "one function; selection_error works with all compressors"
            )
        if traits.of_senders:
            raise ValueError("diagnostics=xi needs aggregation=mean: a mean over senders is not that of C(p)")

    def measure(self, given: StepInput, reduced: Reduced, step: Step) -> dict[str, float]:
        """The ratio; empty if G is 0. The means of ``given`` were computed before the reduction."""
        norm = given.alpha * norm_of(given.mean_gradient)
        if norm == 0:
            return {}
        pairs = list(zip(given.segments, given.mean_input, strict=True))
        wholes = [mean.to(segment.rows.dtype).unsqueeze(0) for segment, mean in pairs]
        left = [s._replace(rows=x.clone()) for (s, _), x in zip(pairs, wholes, strict=True)]
        codecs = [reduced.compressed[segment.name].codec for segment in left]
        known = [codec for codec in codecs if codec is not None]
        assert len(known) == len(codecs)  # guaranteed by ``require_codec``
        backend_of(left[0].rows.device).compress(known, list(map(Input, left)), step, _ONE)
        of_mean = [(whole - segment.rows)[0] for whole, segment in zip(wholes, left, strict=True)]
        means = (reduced.mean[segment.name] for segment in left)  # mean C(p) / alpha
        apart = [one.double().sub_(mean, alpha=given.alpha) for one, mean in zip(of_mean, means, strict=True)]
        return {"diagnostics/xi": norm_of(apart) / norm}
