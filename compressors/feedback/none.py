"""No feedback: what is not sent is lost."""

from compressors.api import Reducer


def no_feedback(inner: Reducer, *, scale: str | None = None) -> Reducer:
    """What is not sent is lost. A preset's ``scale`` is of no interest then."""
    return inner
