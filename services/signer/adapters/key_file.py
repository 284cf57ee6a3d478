"""A signing key in a file: exactly 32 raw bytes, the owner's alone, or root's and a group's."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from coincurve import PrivateKey

from assay.attestation import PublicKey, message_digest, sign_digest
from assay_runtime.settings import SettingsError

_KEY_BYTES = 32


class FileKey:
    """SigningKey from a file; the secret appears in no repr, log or error."""

    __slots__ = ("_private", "_published")

    def __init__(self, private: PrivateKey) -> None:
        self._private = private
        self._published = PublicKey(private.public_key.format(compressed=True))

    @classmethod
    def open(cls, path: Path) -> FileKey:
        """The key in `path`; SettingsError with the reason where it must not be used."""
        try:
            return cls(PrivateKey(_read_secret(path)))
        except OSError as error:
            raise SettingsError(f"key file {path}: {error.strerror}") from error
        except ValueError:
            # The cause may quote the number; a key of 0 or beyond the group is no key.
            raise SettingsError(f"key file {path}: the 32 bytes are no secp256k1 key") from None

    @property
    def public_key(self) -> bytes:
        return self._published.data

    @property
    def kid(self) -> str:
        return self._published.kid

    def sign(self, message: bytes) -> bytes:
        return sign_digest(self._private, message_digest(message))

    def __repr__(self) -> str:
        return f"FileKey(kid={self.kid!r})"

    def __reduce__(self) -> str:
        raise TypeError("a signing key cannot be copied or pickled")


def generate_key_file(path: Path) -> FileKey:
    """Make a new key in `path`, mode 0600; FileExistsError where the file is there already.

    The file appears whole or not at all, and never replaces another.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp gives mode 0600 whatever the umask.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(PrivateKey().secret)
            file.flush()
            os.fsync(file.fileno())
        os.link(name, path)
    finally:
        os.unlink(name)
    _sync_folder(path.parent)
    return FileKey.open(path)


def _read_secret(path: Path) -> bytes:
    # O_NONBLOCK: a named pipe in the key's place must not hang the start.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(f"key file {path}: not a regular file")
        mode = stat.S_IMODE(status.st_mode)
        # PostgreSQL's rule: a Secret mounted for a process that is not root is root's file, which
        # the process can read as a member of its group only.
        by_group = status.st_uid == 0 and os.geteuid() != 0
        if mode & (0o037 if by_group else 0o077):
            allowed = "640" if by_group else "600"
            raise SettingsError(
                f"key file {path}: others may access it (mode {mode:04o}); run "
                f"`chmod {allowed} {path}`"
            )
        if status.st_uid not in (os.geteuid(), 0):
            raise SettingsError(
                f"key file {path}: it belongs to user {status.st_uid}, not to this process's "
                f"user {os.geteuid()}"
            )
        secret = file.read(_KEY_BYTES + 1)
        if len(secret) != _KEY_BYTES:
            raise SettingsError(
                f"key file {path}: {status.st_size} bytes; a key is exactly {_KEY_BYTES} raw bytes"
            )
    return secret


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
