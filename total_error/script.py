"""Public names for a training script; ``total_error`` has them all."""

from compressors.build import build_reducer
from compressors.named import feedback, method, method_names
from trainers.advice.advise import advise
from trainers.comm.communicator import Communicator
from trainers.comm.compress import compress
from trainers.comm.ddp_hook import CompressionState, compression_hook
from trainers.comm.fsdp_hook import compress_replicas
from trainers.ledger import Ledger

__all__ = [
    "Communicator",
    "CompressionState",
    "Ledger",
    "advise",
    "build_reducer",
    "compress",
    "compress_replicas",
    "compression_hook",
    "feedback",
    "method",
    "method_names",
]
