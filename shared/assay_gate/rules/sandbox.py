"""The parent's side of the worker: one process, a deadline, and a new process after a kill."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from assay_gate.verdict import GateError

_WORKER = Path(__file__).with_name("worker.py")
_START_SECONDS = 60.0

Outcome = dict[str, Any]
"""One reply of the worker: truth and value, skipped, or error and message."""


class Sandbox:
    """Evaluates expressions in a worker process; started when first needed, one unit at a time."""

    def __init__(self, seconds: float, megabytes: int) -> None:
        self.seconds = seconds
        self.megabytes = megabytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._unread = b""
        atexit.register(self.close)

    def evaluate(
        self, tasks: Sequence[Mapping[str, Any]], record: Mapping[str, Any], seed: str
    ) -> list[Outcome]:
        """One outcome for each task; after a task that hung or died, the rest are left out.

        Raises GateError if the record is no JSON or no worker can be started.
        """
        try:
            unit = json.dumps(
                {"seed": seed, "seconds": self.seconds, "record": record, "tasks": tasks}
            )
        except (TypeError, ValueError) as error:
            raise GateError(f"the record for the rules is no JSON: {error}") from None
        with self._lock:
            process = self._running()
            deadline = time.monotonic() + self.seconds
            if not self._send(process, unit.encode() + b"\n", deadline):
                return [self._ended(deadline)]
            outcomes: list[Outcome] = []
            for _ in tasks:
                line = self._line(process, deadline)
                outcomes.append(json.loads(line) if line else self._ended(deadline))
                if not line:
                    break
            return outcomes

    def close(self) -> None:
        """Ends the worker; the next unit starts a new one."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            if self._process.poll() is None:
                return self._process
            self.close()
        self._unread = b""
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER), str(self.megabytes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
            # A set's order must not differ from worker to worker: a redelivery repeats its bytes.
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        os.set_blocking(_pipe(self._process.stdin), False)
        if not self._line(self._process, time.monotonic() + _START_SECONDS):
            self.close()
            raise GateError("the process that evaluates rules does not start")
        return self._process

    def _send(self, process: subprocess.Popen[bytes], data: bytes, deadline: float) -> bool:
        pipe = _pipe(process.stdin)
        sent = 0
        while sent < len(data):
            if not _ready(pipe, select.POLLOUT, deadline):
                return False
            try:
                sent += os.write(pipe, data[sent : sent + 65536])
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return False
        return True

    def _line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        """The worker's next line; empty when it hung or died."""
        pipe = _pipe(process.stdout)
        while b"\n" not in self._unread:
            part = os.read(pipe, 65536) if _ready(pipe, select.POLLIN, deadline) else b""
            if not part:
                return b""
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _ended(self, deadline: float) -> Outcome:
        late = time.monotonic() >= deadline
        self.close()
        if late:
            return {"error": "Timeout", "message": f"took longer than {self.seconds:g} s"}
        return {"error": "WorkerDied", "message": "the process that evaluated it died"}


def _pipe(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise GateError("the process that evaluates rules has no pipe")
    return stream.fileno()


def _ready(pipe: int, event: int, deadline: float) -> bool:
    """Whether a pipe can be read or written before the deadline."""
    waiter = select.poll()
    waiter.register(pipe, event)
    return bool(waiter.poll(max(0.0, deadline - time.monotonic()) * 1000))
