"""Public names for lossless differences between versions of weights; they need the extra ``[deltas]``."""

from importlib.util import find_spec

if find_spec("safetensors") is None:
    install = "pip install -e '.[deltas]'"
    raise ImportError(f"total_error.deltas needs safetensors, which is not installed: {install}")

# isort: split
from trainers.deltas.delta import Delta, DeltaError, as_seen, encode, fingerprint
from trainers.deltas.versions import DeltaReader, DeltaWriter, Written

__all__ = [
    "Delta",
    "DeltaError",
    "DeltaReader",
    "DeltaWriter",
    "Written",
    "as_seen",
    "encode",
    "fingerprint",
]
