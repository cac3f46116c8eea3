"""Public names of the algebra: segments, codecs, payloads, reducers and helpers for methods.

W is the number of workers in this process, n the number of all workers, d the number of elements of one
segment, L the number of its layers. A *codec* turns one worker's vector into a payload. A *reducer* maps the
inputs of all workers to the mean of their C(p); all communication is in reducers. ``Compress``
(``core/compress.py``) builds a reducer from a codec. A method with several rounds of communication is a
reducer itself. Feedback is a reducer that wraps another one.

All operations work in place: entries that are not sent stay in the input's buffer, so no other tensor of size
n x D is needed.
"""

from compressors.core.checks import is_count, is_real, require, require_choice, require_flag
from compressors.core.codec import Codec, Compressed, Payload, Plan, Traits, kinds_of
from compressors.core.communicator import Communicator
from compressors.core.density import elements_of, unsent_share
from compressors.core.fields import INDICES, METADATA, VALUES, Field
from compressors.core.norms import squared_norm
from compressors.core.payloads import Sparse, take
from compressors.core.reducer import Reduced, Reducer, Wrapper
from compressors.core.rules import AtLeast
from compressors.core.segments import Input, Segment, Shared, State, Step, inputs_of, zeros_of
from compressors.kernels.choice import backend_of
from compressors.parts.estimated import EstimatedThreshold, Rows
from compressors.parts.knob import Knob
from compressors.parts.searches import at_least
from compressors.parts.with_density import CodecWithDensity, ReducerWithDensity

__all__ = [
    "INDICES",
    "METADATA",
    "VALUES",
    "AtLeast",
    "Codec",
    "CodecWithDensity",
    "Communicator",
    "Compressed",
    "EstimatedThreshold",
    "Field",
    "Input",
    "Knob",
    "Payload",
    "Plan",
    "Reduced",
    "Reducer",
    "ReducerWithDensity",
    "Rows",
    "Segment",
    "Shared",
    "Sparse",
    "State",
    "Step",
    "Traits",
    "Wrapper",
    "at_least",
    "backend_of",
    "elements_of",
    "inputs_of",
    "is_count",
    "is_real",
    "kinds_of",
    "require",
    "require_choice",
    "require_flag",
    "squared_norm",
    "take",
    "unsent_share",
    "zeros_of",
]
