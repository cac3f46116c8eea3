"""Listening sockets of processes, read from /proc/net."""

import ipaddress
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

_LISTENING = "0A"


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses of the TCP sockets on which these processes accept connections."""
    own = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                own.add(os.readlink(link))  # noqa: PTH115 (not a path)
            except OSError:  # the file has been closed
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode = line.split()[:10]
            if state == _LISTENING and f"socket:[{inode}]" in own:
                found.add(_address(local.split(":")[0]))
    return found


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _address(hexadecimal: str) -> str:
    """An address from the kernel's format: 32-bit words in the machine's byte order."""
    words = [hexadecimal[start : start + 8] for start in range(0, len(hexadecimal), 8)]
    packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
