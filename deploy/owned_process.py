"""A server process that is known to be ours: pid file with a start mark, log file, clean end.

A pid alone says nothing after a crash or a reboot, because numbers are used again. The record
therefore also holds when the process was started, and every signal is sent only after that mark
was seen on the living process.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
# The kernel watches the thread that started a child, not the program, so children are started on
# one thread that lasts as long as the program does.
_LAUNCHER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="launcher")


class ServerError(RuntimeError):
    """A server could not be started or stopped; the message is one line for a person."""


class MissingTool(ServerError):
    """A program this machine lacks; the message names it and how to get it."""


def start_mark(pid: int) -> str | None:
    """What tells this process from a later one of the same number; None when it is not alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_mark_by_ps(pid)
    except ProcessLookupError:
        return None
    # The program's name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" and not _threads_left(pid) else f"{boot}:{started}"


def _threads_left(pid: int) -> bool:
    """Whether a process shown as ended still has threads, and with them its ports, to give up."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _start_mark_by_ps(pid: int) -> str | None:
    shown = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip() or None


def _parent_death_signal(number: signal.Signals) -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it ended before the kernel was asked to tell
            os._exit(1)

    return in_child


def start(
    command: Sequence[str],
    *,
    stdout: IO[bytes],
    stderr: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    parent_death: signal.Signals | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own; without `stderr` both outputs go to `stdout`. It
    inherits `pass_fds` under their numbers.

    With `parent_death` the process gets that signal when this program ends (Linux), so that not
    even a kill -9 of a test run leaves it behind.
    """
    account = pwd.getpwnam(user) if user else None

    def launched() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT if stderr is None else stderr,
            env=dict(env) if env is not None else None,
            start_new_session=True,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            preexec_fn=_parent_death_signal(parent_death) if parent_death else None,
            pass_fds=pass_fds,
        )

    return _LAUNCHER.submit(launched).result()


class OwnedProcess:
    """One process group, its record at `record` and its output at `log`."""

    def __init__(self, record: Path, log: Path) -> None:
        self.record = record
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    def launch(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        parent_death: signal.Signals | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """`start` it with its output in the log, and write the record."""
        with self.log.open("ab") as output:
            self._child = start(
                command,
                stdout=output,
                env=env,
                user=user,
                parent_death=parent_death,
                pass_fds=pass_fds,
            )
        pid = self._child.pid
        text = json.dumps({"pid": pid, "started": start_mark(pid)})
        self.record.write_text(text + "\n", encoding="utf-8")

    @property
    def pid(self) -> int | None:
        """Process id while it lives; a process of another start mark is not ours."""
        if self._child is not None:
            self._child.poll()  # reaps it when it has ended
        try:
            facts = json.loads(self.record.read_text(encoding="utf-8"))
            pid, mark = int(facts["pid"]), start_mark(int(facts["pid"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return pid if mark is not None and mark == facts.get("started") else None

    def send(self, number: signal.Signals) -> bool:
        """Signal the whole group; False when the process is not there."""
        pid = self.pid
        if pid is None:
            return False
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait_gone(self, patience_s: float) -> bool:
        """Wait for its end; removes the record when it came."""
        deadline = time.monotonic() + patience_s
        while self.pid is not None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        self.record.unlink(missing_ok=True)
        return True

    def end(self, gently: signal.Signals, patience_s: float) -> None:
        """Ask with `gently`, also when it is paused, and kill it when it does not go."""
        if self.send(gently):
            self.send(signal.SIGCONT)
        if not self.wait_gone(patience_s):
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken the process away."""
        self.send(signal.SIGKILL)
        if not self.wait_gone(10):
            raise ServerError(f"process {self.pid} does not go away after SIGKILL")

    def last_words(self, marks: Sequence[str] = ()) -> str:
        """The last line of the log with one of `marks`, else the last line at all."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")[-65_536:]
        except FileNotFoundError:
            return "it wrote nothing"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        marked = [line for line in lines if any(mark in line for mark in marks)]
        return (marked or lines or ["it wrote nothing"])[-1]
