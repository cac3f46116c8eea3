"""The command ``python -m results`` in this process."""

from collections.abc import Callable, Sequence

from results.__main__ import main


def command_of_results(*words: str) -> Callable[[Sequence[str]], int]:
    """Run ``python -m results WORDS``; returns its exit status."""
    return lambda arguments: main([*words, *arguments])
