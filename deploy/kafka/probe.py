"""Asks a broker who it is, in Kafka's own protocol and with nothing but a socket."""

from __future__ import annotations

import socket
import struct

_METADATA, _VERSION, _CORRELATION = 3, 2, 0x0A55A7


class _Reader:
    """Big-endian fields of a Kafka response, in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return int.from_bytes(self._take(2), signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), signed=True)

    def string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise ValueError("the answer ends too early")
        self._at += count
        return self._data[self._at - count : self._at]


def cluster_behind(port: int, timeout_s: float = 1.0, *, address: str = "127.0.0.1") -> str | None:
    """Id of the cluster whose registered broker listens on `address`:`port`, or None.

    A Metadata request (v2, no topics): the broker lists itself only once the controller has let
    it in, so an answer that names this port means that clients can work.
    """
    body = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            stream = connection.makefile("rb")
            size = int.from_bytes(stream.read(4))
            # A stranger's first bytes may spell any size.
            answer = _Reader(stream.read(size) if 0 < size < 1_000_000 else b"")
        if answer.int32() != _CORRELATION:
            return None
        ports = []
        for _ in range(answer.int32()):
            answer.int32()
            answer.string()
            ports.append(answer.int32())
            answer.string()
        cluster = answer.string()
    except (OSError, ValueError):
        return None
    return cluster if port in ports else None
