"""The world outside the stack as tests need it: a model and an aggregator that follow scripts."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from deploy.dev.aggregator import simulated_record

DIMENSIONS = ("activity", "maturity", "diversity", "riskBehavior", "surveyMatch")
GOOD = (80, 70, 60, 90, 50)


def worth(parts: tuple[int, ...]) -> int:
    """The score a breakdown adds up to (SPEC S1.6), in whole points."""
    weights = (2, 2, 2, 2.5, 1.5)
    return int(sum(part * weight for part, weight in zip(parts, weights, strict=True)))


def score_answer(parts: tuple[int, ...] = GOOD, **changes: Any) -> str:
    """A model's answer; `changes` replace its fields, so `score=750` makes it a wrong total."""
    answer = {
        "scoreBreakdown": dict(zip(DIMENSIONS, parts, strict=True)),
        "score": worth(parts),
        "reasoning": "Steady activity over years and every loan repaid.",
        "risk_factors": ["thin diversification"],
        "strengths": ["repaid all loans"],
        **changes,
    }
    return json.dumps(answer)


def seed_of(address: str) -> int:
    """By its seed (DESIGN §5) a call tells which wallet it is about; the prompt does not."""
    digest = hashlib.sha256(address.lower().removeprefix("0x").encode()).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True)
class Reply:
    """What to answer: after `delay_s`, with `status`; `finish` is Ollama's done_reason."""

    body: str = ""
    status: int = 200
    delay_s: float = 0.0
    finish: str = "stop"


@dataclass(frozen=True)
class Call:
    """One call of the model."""

    seed: int
    temperature: float
    prompt: str
    format: dict[str, Any]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Scripted:
    """An HTTP server on a port of its own, which can go away and come back on that port."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_GET(self) -> None:
                self._answer(outer.get(self.path))

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                self._answer(outer.post(self.path, self.rfile.read(length)))

            def _answer(self, reply: Reply) -> None:
                time.sleep(reply.delay_s)
                body = reply.body.encode()
                # Connections are not kept: one that outlived `stop` would still be answered.
                self.close_connection = True
                try:
                    self.send_response(reply.status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(body)))
                    self.send_header("connection", "close")
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the caller has gone

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def get(self, path: str) -> Reply:
        raise NotImplementedError

    def post(self, path: str, body: bytes) -> Reply:
        return Reply(status=404)


class ScriptedModel(_Scripted):
    """Speaks Ollama's /api/chat. Wallets without a script get one good answer after another."""

    name = "scripted"

    def __init__(self) -> None:
        super().__init__()
        self._scripts: dict[int, list[Reply]] = {}
        self._calls: list[Call] = []

    def script(self, address: str, *replies: str | Reply) -> None:
        """The answers for a wallet, one a call; the last one is given for ever."""
        made = [r if isinstance(r, Reply) else Reply(r) for r in replies]
        with self._lock:
            self._scripts[seed_of(address)] = made

    def calls(self, address: str) -> list[Call]:
        with self._lock:
            return [call for call in self._calls if call.seed == seed_of(address)]

    def get(self, path: str) -> Reply:
        if path == "/api/tags":
            model = {"name": self.name, "model": self.name, "digest": "ab" * 32}
            return Reply(json.dumps({"models": [model]}))
        return Reply(json.dumps({"version": "0.9.6"}))

    def post(self, path: str, body: bytes) -> Reply:
        if path != "/api/chat":
            return Reply(json.dumps({"details": {}, "capabilities": ["completion"]}))
        asked = json.loads(body)
        wanted = asked.get("format") or {}
        if "scoreBreakdown" not in wanted.get("properties", {}):
            return _chat(Reply(json.dumps(_smallest(wanted))))
        options = asked["options"]
        prompt = "\n".join(message["content"] for message in asked["messages"])
        call = Call(options["seed"], options["temperature"], prompt, wanted)
        with self._lock:
            self._calls.append(call)
            script = self._scripts.get(call.seed)
            if script is None:
                return _chat(Reply(score_answer()))
            reply = script.pop(0) if len(script) > 1 else script[0]
        return _chat(reply) if reply.status == 200 else reply


def _chat(reply: Reply) -> Reply:
    body = {
        "model": ScriptedModel.name,
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": reply.body},
        "done": True,
        "done_reason": reply.finish,
        "prompt_eval_count": 10,
        "eval_count": 10,
    }
    return Reply(json.dumps(body), delay_s=reply.delay_s)


def _smallest(schema: dict[str, Any]) -> dict[str, Any]:
    """An instance of the format canary's schema: flat, with constants, enums and numbers."""
    return {
        name: part.get("const", (part.get("enum") or [part.get("minimum", 1)])[0])
        for name, part in schema.get("properties", {}).items()
    }


class ScriptedAggregator(_Scripted):
    """`GET /wallets/{address}`; wallets without a script get a record made from the address."""

    def __init__(self) -> None:
        super().__init__()
        self._replies: dict[str, Reply] = {}
        self.asked: list[str] = []

    @property
    def template(self) -> str:
        return self.url + "/wallets/{address}"

    def script(self, address: str, reply: Reply) -> None:
        with self._lock:
            self._replies[address.lower()] = reply

    def get(self, path: str) -> Reply:
        address = path.rpartition("/")[2]
        with self._lock:
            self.asked.append(address)
            reply = self._replies.get(address.lower())
        return reply or Reply(json.dumps(simulated_record(address)))
