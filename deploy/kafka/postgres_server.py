"""A PostgreSQL server for tests, from Debian's binaries, on 127.0.0.1 and a data directory."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.kafka.child_processes import children_of, send
from deploy.loopback_ports import free_port, is_free
from deploy.owned_process import MissingTool, OwnedProcess, ServerError, start_mark

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DEBIAN = Path("/usr/lib/postgresql")
_SUPERUSER = "assay"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "dynamic_shared_memory_type": "mmap",
    # An acknowledged commit is in the kernel's cache, so it survives a kill -9 of the server ...
    "synchronous_commit": "on",
    # ... and only a crash of the machine could lose it, which no test makes.
    "fsync": "off",
    "full_page_writes": "off",
}


def find_binaries() -> Path:
    """Folder with initdb and postgres of the newest release, or MissingTool."""
    folders = sorted(
        _DEBIAN.glob("*/bin"),
        key=lambda folder: [int(n) for n in re.findall(r"\d+", folder.parent.name)],
        reverse=True,
    )
    if on_path := shutil.which("initdb"):
        folders.append(Path(on_path).resolve().parent)
    for folder in folders:
        if all((folder / tool).exists() for tool in ("initdb", "postgres", "psql")):
            return folder
    raise MissingTool("PostgreSQL is missing: run `apt-get install postgresql`")


def _account() -> str | None:
    """The unprivileged account to use where we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise MissingTool("PostgreSQL refuses root: run `adduser --system postgres`")


class PostgresServer:
    """Server with its cluster under `data_dir`, which other accounts must be able to reach.

    Commits survive `kill`, not a crash of the machine. Everybody on this machine may connect.
    """

    def __init__(self, data_dir: Path, *, dies_with_parent: bool = False) -> None:
        self.data_dir = data_dir.resolve()
        self.port = 0
        self._binaries = find_binaries()
        self._account = _account()
        self._dies_with_parent = dies_with_parent
        self.process = OwnedProcess(self.data_dir / "postgres.pid", self.data_dir / "postgres.log")

    @property
    def running(self) -> bool:
        """Whether our process lives."""
        return self.process.pid is not None

    def url(self, database: str = "postgres") -> str:
        """Address of a database for asyncpg and libpq."""
        return f"postgresql://{_SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def start(self, patience_s: float = 30) -> None:
        """Start on the port of the last start, or a free one, and wait until it takes queries."""
        if self.running:
            return
        cluster = self.data_dir / "cluster"
        if not (cluster / "PG_VERSION").exists():
            self._initialise(cluster)
        if not (self.port and is_free(self.port)):
            self.port = free_port()
        settings = {**_SETTINGS, "port": str(self.port)}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        self.process.launch(
            [str(self._binaries / "postgres"), "-D", str(cluster), *options],
            user=self._account,
            # Immediate shutdown: the server takes its own children with it.
            parent_death=signal.SIGQUIT if self._dies_with_parent else None,
        )
        try:
            self._await_ready(patience_s)
        except BaseException:
            self.kill()
            raise

    def stop(self, patience_s: float = 30) -> None:
        """Fast shutdown: sessions are ended, commits kept."""
        self.process.end(signal.SIGINT, patience_s)

    def kill(self) -> None:
        """kill -9 of the server and of its children, which would else bar the next start."""
        pid = self.process.pid
        children = children_of(pid) if pid is not None else {}
        self.process.kill()
        send(children, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(start_mark(child) == mark for child, mark in children.items()):
            if time.monotonic() >= deadline:
                raise ServerError("children of the killed PostgreSQL server do not go away")
            time.sleep(0.02)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """SIGSTOP: it answers nothing and closes nothing, as when its machine is gone."""
        pid = self.process.pid
        halted = {pid: start_mark(pid), **children_of(pid)} if pid is not None else {}
        # Stopped, it would not hear of our death; whoever waits for the end of this pipe does.
        awake = 'read _; kill -CONT "$@"'
        with subprocess.Popen(
            ["/bin/sh", "-c", awake, "sh", *map(str, halted)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ):
            send(halted, signal.SIGSTOP)
            yield

    def keep_copy(self) -> None:
        """Set the cluster aside as it stands, as a standby that receives nothing more would have
        it; the server must be stopped."""
        self._copy("cluster", "copy")

    def fail_over(self) -> None:
        """Start the copy as a standby in the place of the cluster; `promote` makes it the primary.

        What was committed since `keep_copy` is lost, as with an asynchronous standby.
        """
        self.kill()
        shutil.rmtree(self.data_dir / "cluster")
        self._copy("copy", "cluster")
        signal_file = self.data_dir / "cluster" / "standby.signal"
        signal_file.touch()
        if self._account:
            shutil.chown(signal_file, self._account)
        self.start()

    def promote(self) -> None:
        """Make the standby a primary, on a timeline of its own."""
        self._query("SELECT pg_promote()")

    def restart(self) -> None:
        """Stop and start on the same port and data."""
        self.stop()
        self.start()

    def create_database(self, name: str) -> str:
        """Make an empty database and return its URL; one of that name must not exist."""
        self._query(f"CREATE DATABASE {_checked(name)}")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database, ending the sessions in it."""
        self._query(f"DROP DATABASE IF EXISTS {_checked(name)} WITH (FORCE)")

    def _initialise(self, cluster: Path) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self._account:
            shutil.chown(self.data_dir, self._account)
        self._run(
            "initdb", "-D", str(cluster), "-U", _SUPERUSER, "--auth=trust",
            "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip

    def _copy(self, source: str, target: str) -> None:
        shutil.rmtree(self.data_dir / target, ignore_errors=True)
        folders = [str(self.data_dir / name) for name in (source, target)]
        subprocess.run(["cp", "-a", *folders], check=True)  # with owners, which copytree leaves out

    def _await_ready(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            if not self.running:
                reason = self.process.last_words(("FATAL", "PANIC"))
                raise ServerError(f"PostgreSQL ended while starting: {reason}")
            try:
                return self._query("SELECT 1")
            except ServerError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)

    def _query(self, statement: str) -> None:
        self._run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, self.url())

    def _run(self, tool: str, *arguments: str) -> None:
        account = pwd.getpwnam(self._account) if self._account else None
        done = subprocess.run(
            [str(self._binaries / tool), *arguments],
            capture_output=True, text=True, check=False, cwd="/",
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )  # fmt: skip
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if "rror" in line or "FATAL" in line]
            raise ServerError(f"{tool}: {(lines or done.stderr.splitlines() or ['failed'])[-1]}")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a plain database name")
    return name
