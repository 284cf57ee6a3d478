"""`python -m deploy.dev.ollama up|down|status|build`: a real Ollama with a random-weight model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.dev.ollama.build import BUILD, build
from deploy.dev.ollama.server import OllamaServer
from deploy.owned_process import ServerError

MODEL = "random"


def _report(server: OllamaServer, as_json: bool, text: str) -> None:
    if not as_json:
        print(text)
        return
    running = server.running
    state = {
        "running": running,
        "url": server.url if running else None,
        "pid": server.process.pid,
        "data": str(server.data_dir),
        "log": str(server.process.log),
    }
    print(json.dumps(state))


def _run(command: str, server: OllamaServer, model: str, as_json: bool) -> int:
    if command == "build":
        print(build())
        return 0
    if command == "up":
        server.start()
        server.create(model)
        _report(server, as_json, f"Ollama ready: --model ollama:{model}@{server.url}")
        return 0
    if command == "down" and server.running:
        server.stop()
        _report(server, as_json, "stopped")
        return 0
    _report(server, as_json, f"runs: {server.url}" if server.running else "no server of ours runs")
    return 0 if server.running or command == "down" else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; a failure is one line on standard error and exit status 1."""
    parser = argparse.ArgumentParser(prog="python -m deploy.dev.ollama", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status", "build"))
    parser.add_argument("--port", type=int, help="default: a free one")
    parser.add_argument("--data", type=Path, default=BUILD / "data", help="data directory")
    parser.add_argument("--model", default=MODEL, help=f"name of the model, default {MODEL}")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    asked = parser.parse_args(arguments)
    server = OllamaServer(asked.data, asked.port)
    try:
        return _run(asked.command, server, asked.model, asked.json)
    except ServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
