"""Key files: what is refused, and that the secret stays where it is."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path

import pytest
from coincurve import PrivateKey

from assay.attestation import PublicKey, verify_message
from assay.attestation.sui import ORDER
from assay_runtime.settings import SettingsError
from services.signer.adapters.key_file import FileKey, generate_key_file
from services.signer.adapters.key_uri import open_key

SECRET = bytes(range(1, 33))


def _key_file(path: Path, content: bytes = SECRET, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_signs_under_its_public_key(tmp_path: Path, mode: int) -> None:
    """S3.9: the key of a file signs; its id is the thumbprint of what is published."""
    key = open_key(f"file:{_key_file(tmp_path / 'k', mode=mode)}")
    assert key.public_key == PrivateKey(SECRET).public_key.format(compressed=True)
    assert key.kid == PublicKey(key.public_key).kid
    verify_message(key.public_key, b"message", key.sign(b"message"))
    assert key.sign(b"message") == key.sign(b"message")


def test_forms_of_a_file_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3.9: absolute, relative, with an authority, escaped."""
    monkeypatch.chdir(tmp_path)
    path = _key_file(tmp_path / "a key")
    keys = [
        open_key(uri)
        for uri in (f"file:{path}", "file:a key", "file:a%20key", f"file://{path}",
                    f"file://localhost{path}", f"FILE:{path}")
    ]  # fmt: skip
    assert len({key.kid for key in keys}) == 1


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("awskms:arn:secret", r"'awskms' is no known key scheme; known: file:"),
        ("/etc/key", "no scheme; known: file:"),
        ("", "no scheme"),
        ("file:", "names no file"),
        ("file://elsewhere/key", "file:/absolute/path"),
        ("file://", "file:/absolute/path"),
    ],
)
def test_uris_that_name_no_key(uri: str, reason: str) -> None:
    """X.4: an unknown scheme is answered with the known ones, the rest is not repeated."""
    with pytest.raises(SettingsError, match=reason) as caught:
        open_key(uri)
    assert "arn" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    """Bad input: the start is refused with file and reason."""
    with pytest.raises(SettingsError, match="absent: No such file"):
        open_key(f"file:{tmp_path / 'absent'}")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610, 0o777])
def test_a_file_that_others_may_access(tmp_path: Path, mode: int) -> None:
    """Bad input: the reason names the mode and what to do."""
    path = _key_file(tmp_path / "k", mode=mode)
    with pytest.raises(SettingsError, match=rf"mode {mode:04o}.*chmod 600"):
        open_key(f"file:{path}")


def _owned_and_read_by(monkeypatch: pytest.MonkeyPatch, owner: int, reader: int) -> None:
    """Files look as if `owner` had them, and the process as if it were `reader`'s."""
    fstat = os.fstat

    def owned(descriptor: int) -> os.stat_result:
        status = fstat(descriptor)
        return os.stat_result((*status[:4], owner, *status[5:]))

    monkeypatch.setattr("os.fstat", owned)
    monkeypatch.setattr("os.geteuid", lambda: reader)


@pytest.mark.parametrize("mode", [0o440, 0o640, 0o400])
def test_root_s_file_that_a_group_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """S3.9: as a Kubernetes Secret with an fsGroup is mounted, for a process that is not root."""
    path = _key_file(tmp_path / "k", mode=mode)
    _owned_and_read_by(monkeypatch, owner=0, reader=4711)
    assert open_key(f"file:{path}").public_key


@pytest.mark.parametrize(
    ("owner", "reader", "mode", "advice"),
    [
        (0, 4711, 0o460, "640"), (0, 4711, 0o450, "640"), (0, 4711, 0o444, "640"),
        (0, 4711, 0o641, "640"), (0, 4711, 0o642, "640"), (0, 0, 0o440, "600"),
        (4711, 4711, 0o440, "600"), (4711, 4711, 0o640, "600"), (4711, 0, 0o440, "600"),
        (42, 4711, 0o440, "600"),
    ],
)  # fmt: skip
def test_a_file_that_more_than_root_s_group_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, reader: int, mode: int, advice: str
) -> None:
    """Bad input: only root's own file, only to a group's reading, only for who is not root."""
    path = _key_file(tmp_path / "k", mode=mode)
    _owned_and_read_by(monkeypatch, owner, reader)
    with pytest.raises(SettingsError, match=rf"mode {mode:04o}.*chmod {advice} "):
        open_key(f"file:{path}")


@pytest.mark.parametrize(
    "content",
    [b"", SECRET[:31], SECRET + b"\n", SECRET.hex().encode(), SECRET * 3_000],
    ids=["empty", "31", "newline", "hex", "large"],
)
def test_a_file_of_another_size(tmp_path: Path, content: bytes) -> None:
    """Bad input: not 32 bytes is refused, hex text too."""
    path = _key_file(tmp_path / "k", content)
    with pytest.raises(SettingsError, match=f"{len(content)} bytes; a key is exactly 32"):
        open_key(f"file:{path}")


@pytest.mark.parametrize("number", [0, ORDER, ORDER + 1, 2**256 - 1])
def test_bytes_that_are_no_key(tmp_path: Path, number: int) -> None:
    """Bad input: 0 and numbers beyond the group are no keys, and are not repeated."""
    path = _key_file(tmp_path / "k", number.to_bytes(32, "big"))
    with pytest.raises(SettingsError, match="no secp256k1 key") as caught:
        open_key(f"file:{path}")
    report = "".join(traceback.format_exception(caught.value))
    assert number.to_bytes(32, "big").hex() not in report
    assert str(number) not in report or number == 0


def test_folders_and_pipes_are_refused_at_once(tmp_path: Path) -> None:
    """Bad input: what is no regular file is refused, without waiting for a writer."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("pipe", "."):
        with pytest.raises(SettingsError, match=r"not a regular file|Is a directory"):
            open_key(f"file:{tmp_path / name}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    """Bad input: a key that another account owns is that account's to change."""
    path = _key_file(tmp_path / "k")
    os.chown(path, 4711, 4711)
    with pytest.raises(SettingsError, match="belongs to user 4711"):
        open_key(f"file:{path}")


def test_a_generated_key(tmp_path: Path) -> None:
    """S3.9: a new key is whole, the owner's alone, and never replaces one."""
    path = tmp_path / "new" / "signer.key"
    old = os.umask(0)
    try:
        key = generate_key_file(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o7777 == 0o600
    assert FileKey.open(path).kid == key.kid
    content = path.read_bytes()
    assert len(content) == 32
    with pytest.raises(FileExistsError):
        generate_key_file(path)
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["signer.key"]
    assert generate_key_file(tmp_path / "other").kid != key.kid


def test_the_secret_is_shown_nowhere(tmp_path: Path) -> None:
    """S3.9: neither repr, nor str, nor vars, nor pickle give the key away."""
    key = FileKey.open(_key_file(tmp_path / "k"))
    shown = repr(key) + str(key) + f"{key}"
    assert SECRET.hex() not in shown
    assert repr(SECRET) not in shown
    assert not hasattr(key, "__dict__")
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(key)
