"""Faster calls between kernels in Triton's interpreter.

Triton patches ``triton.language`` at every launch, and again whenever one kernel calls another, which takes a
third of the time. Here, such a call patches nothing. Only Triton's own modules, which a launch does not
patch, are patched at their first call, permanently.
"""

from functools import cache
from typing import Any

import torch


def install() -> None:
    """Replace the calls between interpreted kernels; without effect if there is a GPU."""
    if torch.cuda.is_available():
        return
    import triton.language
    from triton.runtime import interpreter

    @cache
    def prepare(module: str) -> None:
        """Patch the module, unless the launch does."""
        if not any(value is triton.language for value in functions[module].__globals__.values()):
            interpreter._patch_lang(functions[module])

    functions: dict[str, Any] = {}

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        functions.setdefault(self.fn.__module__, self.fn)
        prepare(self.fn.__module__)
        return self.rewrite()(*arguments, **named)

    interpreter.InterpretedFunction.__call__ = call
