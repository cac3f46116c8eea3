"""Public names for a training script; ``total_error`` has them all."""

from compressors.build import build_reducer
from compressors.named import feedback, method, method_names
from trainers.comm.communicator import Communicator
from trainers.hooks.advice.advise import advise
from trainers.hooks.compress import compress
from trainers.hooks.compress_fsdp import compress_fsdp
from trainers.hooks.ddp import CompressionState, compression_hook
from trainers.hooks.fsdp import compress_replicas
from trainers.hooks.local_steps import LocalState, local
from trainers.local import Outer
from trainers.step.ledger import Ledger

__all__ = [
    "Communicator",
    "CompressionState",
    "Ledger",
    "LocalState",
    "Outer",
    "advise",
    "build_reducer",
    "compress",
    "compress_fsdp",
    "compress_replicas",
    "compression_hook",
    "feedback",
    "local",
    "method",
    "method_names",
]
