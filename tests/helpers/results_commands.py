"""``python -m results`` as a user types it, in this process."""

from collections.abc import Callable, Sequence

from results.__main__ import main


def command_of_results(*words: str) -> Callable[[Sequence[str]], int]:
    """``python -m results WORDS``, of which the further arguments are a list; returns its status."""
    return lambda arguments: main([*words, *arguments])
