"""The command ``python -m results`` in this process."""

from collections.abc import Callable, Sequence

from results.__main__ import main


def command_of_results(*words: str) -> Callable[[Sequence[str]], int]:
    """A function that runs ``python -m results WORDS ARGUMENTS`` and returns the exit status."""
    return lambda arguments: main([*words, *arguments])
