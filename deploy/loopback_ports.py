"""Ports on 127.0.0.1 for servers that come and go."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from deploy.owned_process import ServerError

_LOWEST = 20_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:`port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _below_ephemeral() -> int:
    try:
        first = int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return first if first > _LOWEST + 1_000 else 65_536


def free_port() -> int:
    """A free port below the kernel's range for outgoing connections.

    A port inside that range can be taken by a client while its server is down, even by a client
    that connects to itself there; then a killed server could not come back.
    """
    highest = _below_ephemeral() - 1
    for _ in range(500):
        port = random.randint(_LOWEST, highest)
        if is_free(port):
            return port
    raise ServerError(f"no free port between {_LOWEST} and {highest} on 127.0.0.1")
