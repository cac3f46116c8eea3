"""Triton's interpreter, without what it repeats whenever one kernel calls another.

For every such call it puts its own functions in the place of the language's, though the launch has done so:
a third of all the time. What Triton's own functions call, in another module, is replaced once and stays so.
"""

from functools import cache
from typing import Any

import torch


def install() -> None:
    """Let kernels call one another directly, where they are interpreted; once per process."""
    if torch.cuda.is_available():
        return
    import triton.language
    from triton.runtime import interpreter

    @cache
    def prepare(module: str) -> None:
        """Of the first of the module's functions that is called."""
        if not any(value is triton.language for value in functions[module].__globals__.values()):
            interpreter._patch_lang(functions[module])

    functions: dict[str, Any] = {}

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        functions.setdefault(self.fn.__module__, self.fn)
        prepare(self.fn.__module__)
        return self.rewrite()(*arguments, **named)

    interpreter.InterpretedFunction.__call__ = call
