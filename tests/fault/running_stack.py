"""`assay up` as a user starts it, in a process of its own, with its parts within reach."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from assay.attestation import parse_hex_key
from deploy.owned_process import OwnedProcess, start
from tests.fault.stores import StoreUrls
from tests.fault.up import VARIABLE

SERVICES = ("ingest", "features", "scorer", "validator", "signer", "evidence")
_START_S = 120.0
_STOP_S = 60.0


class StackFailed(RuntimeError):
    """The stack did not start or did not end by itself; the message says what it wrote."""


class RunningStack:
    """A stack in a folder of its own, removed at the end unless `data` is given.

    `environment` reaches every service (`ASSAY_SCORER__SLOTS` and the like), `settings` replace
    those that `assay up` makes itself.
    """

    def __init__(
        self,
        broker: str,
        *,
        model: str = "simulator",
        simulator: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        aggregator: str | None = None,
        data: Path | None = None,
    ) -> None:
        self._own = None if data else tempfile.TemporaryDirectory(prefix="assay-run-")
        self.data = data or Path(self._own.name if self._own else "")
        self._command = [
            sys.executable, "-m", "tests.fault.up" if settings else "assay", "up", "--json",
            "--broker", broker, "--model", model, "--data", str(self.data / "stack"),
            *(f"--simulator={option}" for option in simulator),
            *(("--aggregator", aggregator) if aggregator else ()),
        ]  # fmt: skip
        # The stack leaves its address in the temporary folder for `assay publish`: not for ours.
        self._environment = {
            **os.environ,
            "TMPDIR": str(self.data),
            **(environment or {}),
            **({VARIABLE: json.dumps(dict(settings))} if settings else {}),
        }
        self._replicas = 0
        self._line, self._log = self.data / "up.json", self.data / "up.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.addresses: dict[str, Any] = {}

    def __enter__(self) -> RunningStack:
        self.data.mkdir(parents=True, exist_ok=True)
        with self._line.open("wb") as line, self._log.open("wb") as errors:
            # SIGTERM, not SIGKILL: `assay up` then ends its services too, also paused ones.
            self._process = start(
                self._command, stdout=line, stderr=errors, env=self._environment,
                parent_death=signal.SIGTERM,
            )  # fmt: skip
        try:
            self.addresses = self._first_line()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def bootstrap(self) -> str:
        return str(self.addresses["bootstrap"])

    @property
    def public_key(self) -> bytes:
        return parse_hex_key(self.addresses["public_key"]).data

    @property
    def stores(self) -> StoreUrls:
        return StoreUrls.under(self.data / "stack")

    def part(self, name: str) -> OwnedProcess:
        """A service, "simulator" or "broker"."""
        stack = self.data / "stack"
        folder = stack / "kafka" if name == "broker" else stack / "run"
        return OwnedProcess(folder / f"{name}.pid", folder / f"{name}.log")

    def replica(self, name: str, settings: Mapping[str, str] | None = None) -> OwnedProcess | None:
        """Another process of a running service, with its settings, some replaced, and a port of
        its own; None while the service itself does not run."""
        pid = self.part(name).pid
        if pid is None:
            return None
        try:
            raw = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return None
        pairs = (item.decode().partition("=") for item in raw.split(b"\0") if item)
        environment = {key: value for key, _, value in pairs} | {
            "ASSAY_HTTP__PORT": "0",
            **(settings or {}),
        }
        environment.pop("ASSAY_HTTP__FD", None)  # the service's own socket
        self._replicas += 1
        place = self.data / f"{name}-{self._replicas}"
        process = OwnedProcess(place.with_suffix(".pid"), place.with_suffix(".log"))
        command = [sys.executable, "-m", f"services.{name}"]
        process.launch(command, env=environment, parent_death=signal.SIGKILL)
        return process

    def pids(self) -> dict[str, int]:
        """What lives of the stack, by name; the embedded broker lives in "stack" itself."""
        assert self._process is not None
        names = (*SERVICES, "simulator", "broker")
        found = {name: pid for name in names if (pid := self.part(name).pid) is not None}
        return {**found, "stack": self._process.pid}

    def said(self) -> str:
        """What the stack wrote for people so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _first_line(self) -> dict[str, Any]:
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            text = self._line.read_text(encoding="utf-8")
            if text.endswith("\n"):
                return dict(json.loads(text))
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise StackFailed(f"`assay up` was not ready: {self.said().strip() or 'it said nothing'}")

    def _end(self) -> None:
        process = self._process
        try:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    raise StackFailed(f"`assay up` did not end in {_STOP_S:g} s") from None
        finally:
            if self._own is not None:
                self._own.cleanup()
