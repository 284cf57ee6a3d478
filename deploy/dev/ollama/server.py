"""An Ollama server on 127.0.0.1 with a home and a model store of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from deploy.dev.ollama.build import build
from deploy.dev.ollama.make_gguf import CONTEXT, make_gguf
from deploy.loopback_ports import free_port, is_free
from deploy.owned_process import OwnedProcess, ServerError

# A proxy that the environment names has no way to this machine's loopback.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class OllamaServer:
    """Server with everything it keeps under `data_dir`; it reads nothing of the user's own."""

    def __init__(
        self, data_dir: Path, port: int | None = None, *, dies_with_parent: bool = False
    ) -> None:
        self.data_dir = data_dir.resolve()
        self._wanted_port = port
        self._kept_port = self.data_dir / "port"
        self._dies_with_parent = dies_with_parent
        self.process = OwnedProcess(self.data_dir / "ollama.pid", self.data_dir / "ollama.log")

    @property
    def port(self) -> int:
        """Port of the running server, or of its last run."""
        try:
            return int(self._kept_port.read_text(encoding="ascii"))
        except FileNotFoundError:
            raise ServerError(f"the server in {self.data_dir} was never started") from None

    @property
    def url(self) -> str:
        """Base URL; the native API is under /api, the OpenAI-compatible one under /v1."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether our process lives."""
        return self.process.pid is not None

    def start(self, patience_s: float = 30) -> None:
        """Build it if need be, start it and wait until it answers with its version."""
        if self.running:
            return
        binary = build()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._settle()
        self.process.launch(
            [str(binary), "serve"],
            env=self._environment(),
            # On SIGTERM it ends its model runner too.
            parent_death=signal.SIGTERM if self._dies_with_parent else None,
        )
        try:
            self._await_ready(patience_s)
        except BaseException:
            self.kill()
            raise

    def stop(self, patience_s: float = 10) -> None:
        """End the server and its model runner."""
        self.process.end(signal.SIGTERM, patience_s)

    def kill(self) -> None:
        """kill -9 of the server and its model runner; the models stay."""
        self.process.kill()

    def restart(self) -> None:
        """Stop and start on the same port with the same models."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections are accepted and nothing is answered."""
        if not self.process.send(signal.SIGSTOP):
            raise ServerError("the Ollama server is not running, so it cannot be paused")

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if not self.process.send(signal.SIGCONT):
            raise ServerError("the Ollama server is not running, so it cannot be resumed")

    def create(self, model: str) -> None:
        """Make the random-weight model known under this name; a second call changes nothing."""
        weights = self.data_dir / "random.gguf"
        if not weights.exists():
            make_gguf(weights)
        modelfile = self.data_dir / "Modelfile"
        modelfile.write_text(f"FROM {weights}\nPARAMETER num_ctx {CONTEXT}\n", encoding="utf-8")
        done = subprocess.run(
            [str(build()), "create", model, "-f", str(modelfile)],
            env=self._environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise ServerError(f"Ollama could not make {model}: {last}")

    def _settle(self) -> None:
        port = self._wanted_port
        if port is not None and not is_free(port):
            raise ServerError(f"port {port} on 127.0.0.1 is taken by another program")
        if port is None:
            kept = self.port if self._kept_port.exists() else 0
            port = kept if kept and is_free(kept) else free_port()
        self._kept_port.write_text(f"{port}\n", encoding="ascii")

    def _environment(self) -> dict[str, str]:
        own = {
            "HOME": str(self.data_dir),
            "OLLAMA_HOST": f"127.0.0.1:{self.port}",
            "OLLAMA_HOME": str(self.data_dir),
            "OLLAMA_MODELS": str(self.data_dir / "models"),
            "OLLAMA_NUM_PARALLEL": "1",
            "OLLAMA_KEEP_ALIVE": "10m",
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith("OLLAMA_")}
        return {**kept, **own}

    def _await_ready(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            if not self.running:
                raise ServerError(f"Ollama ended while starting: {self.process.last_words()}")
            try:
                with _DIRECT.open(f"{self.url}/api/version", timeout=1) as answer:
                    json.load(answer)["version"]
                    return
            except (OSError, ValueError, KeyError, urllib.error.URLError):
                if time.monotonic() >= deadline:
                    raise ServerError(
                        f"Ollama does not answer after {patience_s:g} s ({self.process.log})"
                    ) from None
                time.sleep(0.05)
