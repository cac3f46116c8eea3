"""Calls of services whose failure does not end a training."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Attempts:
    """Calls of one service. After the first failure, which is printed, there are no further calls.

    ``afterwards`` runs after the failure; the text that it returns is added to the message.
    """

    name: str
    afterwards: Callable[[], str] = str
    failed: bool = field(default=False, init=False)

    def __call__(self, action: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            action()
        except Exception as error:  # of many classes: the service's own, of sockets, of protobuf
            self.failed = True
            reason = " ".join(str(error).split()) or type(error).__name__
            more = self.afterwards()
            print_error(f"{self.name} failed, the training continues without it: {reason}{more}\n")


def print_error(text: str) -> None:
    """Print to standard error, without a line end."""
    print(text, end="", file=sys.stderr, flush=True)
