"""Feedback: wrappers around reducers, and their states."""

from compressors.feedback.diana import DIANA
from compressors.feedback.ef21 import EF21
from compressors.feedback.ef21_sgdm import EF21SGDM
from compressors.feedback.error_feedback import DecayedFeedback, ErrorFeedback, Memory
from compressors.feedback.momentum_correction import MomentumCorrection
from compressors.feedback.none import no_feedback
from compressors.feedback.stored_residual import StoredResidual

__all__ = [
    "DIANA",
    "EF21",
    "EF21SGDM",
    "DecayedFeedback",
    "ErrorFeedback",
    "Memory",
    "MomentumCorrection",
    "StoredResidual",
    "no_feedback",
]
