"""Hostile HTTP responses, and a local server that sends them."""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from random import Random

from file_damage import DAMAGED_BYTES

BODY = b"0123456789\n" * 200
HONEST = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


def answer(*lines: bytes, body: bytes = BODY) -> list[bytes]:
    return [b"\r\n".join((*lines, b"", b"")) + body]


def dripping(content: bytes, pause_seconds: float = 0.02) -> Iterator[bytes]:
    for place in range(len(content)):
        time.sleep(pause_seconds)
        yield content[place : place + 1]


def endless(start: bytes, again: bytes) -> Iterator[bytes]:
    yield start
    while True:
        yield again


OK = b"HTTP/1.1 200 OK"
CHUNKED = b"Transfer-Encoding: chunked"
FOUND = b"HTTP/1.1 302 Found"
HOMES = {  # functions that create the response of a server
    "garbage for a status line": lambda: [b"\x00\xff garbage\r\n\r\n"],
    "a status of no number": lambda: answer(b"HTTP/1.1 abc OK"),
    "a status of 999999": lambda: answer(b"HTTP/1.1 999999 OK"),
    "an endless status line": lambda: endless(b"HTTP/1.1 200 ", b"x" * 10_000),
    "no answer at all": lambda: [],
    "100 headers": lambda: answer(OK, *[b"X-%d: y" % n for n in range(100)]),
    "a header without end": lambda: endless(OK + b"\r\nX: ", b"x" * 10_000),
    "headers without end": lambda: endless(OK + b"\r\n", b"X: y\r\n" * 1000),
    "a header that is no header": lambda: answer(OK, b"\xff\xfe no colon", b": nothing", b"\x00"),
    "a chunk that is cut": lambda: answer(OK, CHUNKED, body=b"ff\r\nabc"),
    "a chunk of no size": lambda: answer(OK, CHUNKED, body=b"zz\r\nabc\r\n0\r\n\r\n"),
    "a chunk of negative size": lambda: answer(OK, CHUNKED, body=b"-5\r\nabc\r\n0\r\n\r\n"),
    "a chunk of 2^70 bytes": lambda: answer(OK, CHUNKED, body=b"400000000000000000\r\nabc"),
    "a chunk size without end": lambda: endless(OK + b"\r\n" + CHUNKED + b"\r\n\r\n", b"0" * 10_000),
    "trailers without end": lambda: endless(OK + b"\r\n" + CHUNKED + b"\r\n\r\n0\r\n", b"X: y\r\n" * 1000),
    "a length of letters": lambda: answer(OK, b"Content-Length: many"),
    "a length below 0": lambda: answer(OK, b"Content-Length: -5"),
    "a length of 5000 digits": lambda: answer(OK, b"Content-Length: " + b"9" * 5000),
    "too long a length": lambda: answer(OK, b"Content-Length: 99999"),
    "too short a length": lambda: answer(OK, b"Content-Length: 5"),
    "two lengths": lambda: answer(OK, b"Content-Length: 5", b"Content-Length: 2200"),
    "a body without end": lambda: endless(OK + b"\r\n\r\n", b"x" * 10_000),
    "a redirection to itself": lambda: answer(FOUND, b"Location: ."),
    "a redirection to a file": lambda: answer(FOUND, b"Location: file:///etc/passwd"),
    "a redirection to nowhere": lambda: answer(FOUND),
    "a redirection that is no address": lambda: answer(FOUND, b"Location: https://[::1"),
    "a redirection to another sign": lambda: answer(FOUND, b"Location: https://\xff\xfe.\xe9/\x01"),
    "a redirection with an endless body": lambda: endless(
        FOUND + b"\r\nLocation: https://127.0.0.1:9/\r\n\r\n", b"x" * 10_000
    ),
    "an interim answer without end": lambda: endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "a refusal in colours": lambda: answer(b"HTTP/1.1 500 \x1b[31mred\x07"),
    "a refusal without end": lambda: endless(b"HTTP/1.1 404 Not Found\r\n\r\n", b"x" * 10_000),
    "unauthorised": lambda: answer(b"HTTP/1.1 401 No", b"WWW-Authenticate: Basic realm=\xff"),
    "no content": lambda: answer(b"HTTP/1.1 204 No Content"),
    "a part": lambda: answer(b"HTTP/1.1 206 Partial", b"Content-Range: bytes 0-9/2200", body=BODY[:10]),
    "another protocol": lambda: [b"SSH-2.0-OpenSSH_9.6\r\n"],
    "an old protocol": lambda: [BODY],
    "a dripping status line": lambda: dripping(HONEST),
    "dripping headers": lambda: dripping(OK + b"\r\n" + b"X: y\r\n" * 90 + HONEST[17:]),
    "a dripping body": lambda: slowly(HONEST[: -len(BODY)], BODY),
    "silence": lambda: slowly(b"", b"x", pause_seconds=30),
}

HARMLESS = {"a header that is no header"}  # the body is complete


def slowly(start: bytes, rest: bytes, pause_seconds: float = 0.02) -> Iterator[bytes]:
    yield start
    yield from dripping(rest, pause_seconds)


def damaged_answers(count: int) -> Iterator[bytes]:
    """``count`` valid responses, plain or chunked, each with random damage."""
    chunked = OK + b"\r\n" + CHUNKED + b"\r\n\r\n898\r\n" + BODY + b"\r\n0\r\n\r\n"
    for number in range(count):
        draw = Random(number)
        change = draw.choice(list(DAMAGED_BYTES.values()))
        yield change(draw.choice([HONEST, chunked]), draw)


@contextmanager
def home(parts: Iterable[bytes]) -> Iterator[str]:
    """The address of a server that sends ``parts`` to the first connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, parts), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, parts: Iterable[bytes]) -> None:
    with suppress(OSError):
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            connection.recv(2**16)
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(2**16):
                pass
