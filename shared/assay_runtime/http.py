"""The service's HTTP server: uvicorn in the service's own event loop."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator

import structlog
import uvicorn
from starlette.types import ASGIApp

from assay_runtime.settings import HttpSection, SettingsError

log = structlog.get_logger()


def bind(section: HttpSection) -> socket.socket:
    """The service's listening socket; a port that is taken is named and another one chosen.

    An address that cannot be listened on is a SettingsError.
    """
    if section.fd is not None:
        return _inherited(section.fd)
    sock = listen(section)
    if section.port not in (0, using := sock.getsockname()[1]):
        log.warning("port_taken", taken=section.port, using=using)
    return sock


def host_of(section: HttpSection) -> str:
    """Where `bind` listens: an inherited socket's own address, whatever the settings say."""
    if section.fd is None:
        return section.host
    try:
        copy = os.dup(section.fd)
    except OSError as error:
        raise SettingsError(f"ASSAY_HTTP__FD: {section.fd}: {error.strerror}") from error
    with _inherited(copy) as sock:
        return str(sock.getsockname()[0])


def listen(section: HttpSection) -> socket.socket:
    """A socket on the port, or on another one where it is taken. SettingsError as `bind`."""
    try:
        return _listen(section.host, section.port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or section.port == 0:
            raise SettingsError(
                f"ASSAY_HTTP__HOST, ASSAY_HTTP__PORT: cannot listen on "
                f"{section.host}:{section.port}: {error.strerror or error}"
            ) from error
    return _listen(section.host, 0)


def _inherited(fd: int) -> socket.socket:
    try:
        sock = socket.socket(fileno=fd)
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError(errno.EINVAL, "it does not listen")
    except OSError as error:
        raise SettingsError(
            f"ASSAY_HTTP__FD: {fd} is no listening socket: {error.strerror or error}"
        ) from error
    sock.setblocking(False)
    return sock


def _listen(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(512)
    except BaseException:
        sock.close()
        raise
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
