"""The simulator's own pages: behaviour (`/control`) and counts (`/stats`)."""

from __future__ import annotations

import json

from aiohttp import web

from deploy.dev.simulator.generation import Generations
from deploy.dev.simulator.settings import BadSetting


class ControlPages:
    """`GET /control`, `POST /control`, `GET /stats`."""

    def __init__(self, generations: Generations) -> None:
        self._generations = generations

    async def shown(self, _: web.Request) -> web.Response:
        """All settings."""
        return web.json_response(self._generations.behaviour.shown())

    async def changed(self, request: web.Request) -> web.Response:
        """Replace the settings that are named; `"reset": true` also clears counts and draws."""
        try:
            changes = json.loads(await request.read())
            if not isinstance(changes, dict):
                raise BadSetting("an object of settings is expected")
            reset = changes.pop("reset", False)
            behaviour = self._generations.behaviour.changed(changes)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        self._generations.behave(behaviour)
        if reset is True:
            self._generations.reset()
        return web.json_response(behaviour.shown())

    async def counted(self, _: web.Request) -> web.Response:
        """Counts since the start or the last reset."""
        found = self._generations
        return web.json_response(
            {
                "calls": found.calls,
                "retries": found.retries,
                "disconnected": found.disconnected,
                "in_flight": found.slots.taken,
                "waiting": found.slots.waiting,
                "peak_in_flight": found.peak,
                **{name: dict(sorted(counts.items())) for name, counts in found.counts.items()},
            }
        )
