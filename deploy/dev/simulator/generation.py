"""One generation call from body to response, with whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
import time
from collections import Counter
from dataclasses import replace
from random import Random

from aiohttp import web

from deploy.dev.simulator.answers import Answer
from deploy.dev.simulator.faults import Lottery, Ticket
from deploy.dev.simulator.instances import BadSchema, NoInstance
from deploy.dev.simulator.protocols import MODEL, BadRequest, Call, Protocol, Reply, tokens
from deploy.dev.simulator.settings import Behaviour
from deploy.dev.simulator.slots import Busy, Slots
from deploy.dev.simulator.spoiling import spoiled

_FAULT_HEADER = "X-Simulator-Fault"
_CHARS_PER_TOKEN = 4
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_log = logging.getLogger("simulator")
_STATUSES = {
    "http_500": (500, "simulated: the runner ended unexpectedly"),
    "http_503": (503, "simulated: server busy, please try again"),
    "http_429": (429, "simulated: too many requests"),
    "model_missing": (404, f"model '{MODEL}' not found, try pulling it first"),
}


class Generations:
    """What all calls share: behaviour, draws, slots and counts."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.slots = Slots(behaviour.slots, behaviour.queue)
        self.reset()

    def reset(self) -> None:
        """Counts from zero, draws from the start."""
        self.lottery = Lottery(self.behaviour.seed)
        self.counts: dict[str, Counter[str]] = {
            name: Counter() for name in ("endpoints", "statuses", "faults")
        }
        self.calls = self.retries = self.peak = self.disconnected = 0

    def behave(self, behaviour: Behaviour) -> None:
        """From the next call on."""
        if (behaviour.seed, behaviour.draws) != (self.behaviour.seed, self.behaviour.draws):
            self.lottery = Lottery(behaviour.seed)
        self.behaviour = behaviour
        self.slots.resize(behaviour.slots, behaviour.queue)

    async def handle(self, request: web.Request, protocol: Protocol) -> web.StreamResponse:
        """Answer one request of either protocol."""
        started = time.monotonic()
        self.calls += 1
        self.counts["endpoints"][protocol.name] += 1
        try:
            response = await self._response(request, protocol, started)
        except asyncio.CancelledError:
            self.disconnected += 1
            raise
        self.counts["statuses"][str(response.status)] += 1
        if _log.isEnabledFor(logging.DEBUG):
            took = (time.monotonic() - started) * 1000
            fault = response.headers.get(_FAULT_HEADER, "")
            _log.debug("%s %d %.1f ms %s", protocol.name, response.status, took, fault)
        return response

    async def _response(
        self, request: web.Request, protocol: Protocol, started: float
    ) -> web.Response:
        try:
            call = _read(await request.read(), protocol)
        except BadRequest as error:
            return _error(protocol, 400, str(error))
        if call.model.removesuffix(":latest") != MODEL:
            message = f"model '{call.model}' not found, try pulling it first; there is only {MODEL}"
            return _error(protocol, 404, message)
        self.retries += call.is_retry
        behaviour = self.behaviour
        ticket = self.lottery.ticket(call, behaviour)
        fault = ticket.fault(call, behaviour)
        if fault in _STATUSES:
            return self._marked(_status(protocol, fault, behaviour.retry_after_s), fault)
        try:
            async with self.slots:
                self.peak = max(self.peak, self.slots.taken)
                if fault == "hang":
                    return await self._hang(protocol, behaviour.hang_cap_s)
                return await self._answer(request, protocol, call, ticket, fault, started)
        except Busy:
            message = "server busy, please try again.  maximum pending requests exceeded"
            return _error(protocol, 503, message, behaviour.retry_after_s)

    async def _answer(
        self,
        request: web.Request,
        protocol: Protocol,
        call: Call,
        ticket: Ticket,
        fault: str | None,
        started: float,
    ) -> web.Response:
        behaviour = self.behaviour
        begun = time.monotonic()
        try:
            answer = Answer(call, gullible=behaviour.gullible)
        except (BadSchema, NoInstance) as error:
            return _error(protocol, 400, f"the schema cannot be answered: {error}")
        if fault not in ("reset", "malformed_body", None):
            fault, reply = spoiled(str(fault), answer, Random(ticket.seed))
        else:
            reply = Reply(answer.text)
        reply = _limited(reply, call.max_tokens)
        wanted = (behaviour.latency_ms + behaviour.jitter_ms * ticket.jitter()) / 1000
        if (left := wanted - (time.monotonic() - begun)) > 0:
            await asyncio.sleep(left)
        if fault == "reset":
            _reset(request)
        body = json.dumps(protocol.reply(call, reply, time.monotonic() - started)).encode()
        if fault == "malformed_body":
            body = body[: len(body) // 2]
        response = web.Response(body=body, content_type="application/json")
        return response if fault is None else self._marked(response, fault)

    async def _hang(self, protocol: Protocol, cap_s: float) -> web.Response:
        # Counted first: as a rule it is the client that ends this.
        response = self._marked(_error(protocol, 503, f"simulated: hung for {cap_s:g} s"), "hang")
        await asyncio.sleep(cap_s)
        return response

    def _marked(self, response: web.Response, fault: str) -> web.Response:
        self.counts["faults"][fault] += 1
        response.headers[_FAULT_HEADER] = fault
        return response


def _read(raw: bytes, protocol: Protocol) -> Call:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("the body is no JSON object")
    call = protocol.read(body)
    if call.stream:
        raise BadRequest('stream: the simulator does not stream; send "stream": false')
    return call


def _limited(reply: Reply, most: int) -> Reply:
    """Cut where the client's token limit ends."""
    if most < 0 or tokens(reply.text) <= most:
        return reply
    return replace(reply, text=reply.text[: most * _CHARS_PER_TOKEN], finish="length")


def _status(protocol: Protocol, fault: str, retry_after_s: int) -> web.Response:
    status, message = _STATUSES[fault]
    return _error(protocol, status, message, retry_after_s if status in (429, 503) else None)


def _error(
    protocol: Protocol, status: int, message: str, retry_after_s: int | None = None
) -> web.Response:
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return web.json_response(protocol.error(status, message), status=status, headers=headers)


def _reset(request: web.Request) -> None:
    """Close the connection such that the peer sees ECONNRESET."""
    transport = request.transport
    if transport is None:
        return
    peer = transport.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
