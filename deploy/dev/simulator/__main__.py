"""`python -m deploy.dev.simulator`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys

from deploy.dev.simulator.command_line import Options, parse
from deploy.dev.simulator.protocols import MODEL
from deploy.dev.simulator.server import Simulator


async def _serve(options: Options) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    simulator = Simulator(options.behaviour, options.host, options.port)
    try:
        await simulator.start()
    except OSError as error:
        print(f"simulator: {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 1
    listening = {
        "event": "listening",
        "url": simulator.url,
        "host": options.host,
        "port": simulator.port,
        "model": MODEL,
    }
    text = json.dumps(listening) if options.as_json else f"{MODEL} listening on {simulator.url}"
    print(text, flush=True)
    await stop.wait()
    await simulator.stop()
    return 0


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    options = parse(sys.argv[1:], os.environ)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    sys.exit(asyncio.run(_serve(options)))


if __name__ == "__main__":
    main()
