"""Public names of the algebra: segments, codecs, payloads, reducers, and what methods are written with.

W is the number of workers that live in this process, n the number of all workers, d the number of elements
of one segment, L the number of its layers. A *codec* turns one worker's vector into a payload. A *reducer*
turns what all workers have into the mean of what they send, which is where bytes move. ``Compress``
(``core/compress.py``) makes a reducer of a codec; a method of several rounds is a reducer itself; feedback is
a reducer around another.

Everything works in place: what was not sent is left in the buffer that came in, so that no further tensor of
size n x D is needed.
"""

from compressors.core.checks import is_count, is_real, require, require_flag
from compressors.core.codec import Codec, Compressed, Payload, Plan, Traits, kinds_of
from compressors.core.communicator import Communicator
from compressors.core.density import elements_of, unsent_share
from compressors.core.fields import INDICES, METADATA, VALUES, Field
from compressors.core.norms import squared_norm
from compressors.core.payloads import Sparse, take
from compressors.core.reducer import Reduced, Reducer, Wrapper
from compressors.core.segments import Input, Segment, Shared, State, Step, inputs_of, zeros_of
from compressors.core.with_density import CodecWithDensity

__all__ = [
    "INDICES",
    "METADATA",
    "VALUES",
    "Codec",
    "CodecWithDensity",
    "Communicator",
    "Compressed",
    "Field",
    "Input",
    "Payload",
    "Plan",
    "Reduced",
    "Reducer",
    "Segment",
    "Shared",
    "Sparse",
    "State",
    "Step",
    "Traits",
    "Wrapper",
    "elements_of",
    "inputs_of",
    "is_count",
    "is_real",
    "kinds_of",
    "require",
    "require_flag",
    "squared_norm",
    "take",
    "unsent_share",
    "zeros_of",
]
