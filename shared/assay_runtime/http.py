"""The service's HTTP server: uvicorn in the service's own event loop."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

import structlog
import uvicorn
from starlette.types import ASGIApp

from assay_runtime.settings import HttpSection

log = structlog.get_logger()


def bind(section: HttpSection) -> socket.socket:
    """A listening socket; a port that is taken is named and another one chosen."""
    sock = socket.socket(socket.AF_INET6 if ":" in section.host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((section.host, section.port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE or section.port == 0:
            sock.close()
            raise
        sock.bind((section.host, 0))
        log.warning("port_taken", taken=section.port, using=sock.getsockname()[1])
    sock.listen(512)
    sock.setblocking(False)
    return sock


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: the service decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: ASGIApp) -> Server:
    return Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
            server_header=False,
        )
    )
