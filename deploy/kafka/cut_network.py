"""A network of a server's own, whose wire to this machine can be cut (Linux, root, iproute2).

The server lives in a network namespace behind a pair of virtual interfaces. What is cut is dropped
without a word and connections stay as they were, unlike a stopped process, whose kernel goes on
acknowledging, or a closed port, which refuses.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from deploy.owned_process import MissingTool, OwnedProcess, ServerError

_TOOLS = ("ip", "unshare", "nsenter")
_INSIDE = "wire0"
# Of a rule: the lower is looked at first, and Linux begins at 0 and goes on at 32766.
_FIRST_CUT, _LOCAL = 10, 30_000
_numbers = itertools.count()


class CutNetwork:
    """`address` is the server's, reached from this machine alone; `enter` are the words before a
    command that runs inside.

    The kernel takes all of it away with its last process, and a process that only waits in it is
    killed with this program, so that not even a kill -9 leaves an interface behind.
    """

    def __init__(self) -> None:
        self.address = ""
        self.enter: tuple[str, ...] = ()
        self._outside = ""
        self._preferences = itertools.count(_FIRST_CUT)
        self._stack = ExitStack()

    def open(self) -> None:
        """MissingTool where this machine or account cannot."""
        if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in _TOOLS):
            raise MissingTool("a network of its own needs root, iproute2 and util-linux")
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stack.close()

    @contextmanager
    def cut(
        self, ports: Sequence[int] = (), *, requests: bool = True, replies: bool = True
    ) -> Iterator[None]:
        """Nothing comes through between this machine and the server, or its `ports` where given;
        `requests` are what is sent to it, `replies` what it sends. Cuts may overlap."""
        rules: list[list[str]] = []
        for port in ports or (None,):
            tcp = ["ipproto", "tcp"] if port else []
            rules += [["iif", _INSIDE, *tcp, *_port("dport", port)]] if requests else []
            back = [*tcp, *_port("sport", port)]
            rules += [["iif", "lo", "to", self._outside, *back]] if replies else []
        with ExitStack() as mended:
            for rule in rules:
                # Of two with one preference, deleting may take away the other: what is not named
                # in a deletion matches anything.
                preference = str(next(self._preferences))
                self._inside("rule", "add", "pref", preference, *rule, "blackhole")
                mended.callback(self._inside, "rule", "del", "pref", preference)
            yield

    def _make(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="assay-network-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        holder = OwnedProcess(folder / "holder.pid", folder / "holder.log")
        own = _namespace(os.getpid())
        holder.launch(["unshare", "--net", "sleep", "infinity"], parent_death=signal.SIGKILL)
        self._stack.callback(holder.kill)
        pid = holder.pid
        deadline = time.monotonic() + 10
        while pid is None or _namespace(pid) == own:
            if holder.pid is None or time.monotonic() >= deadline:
                raise MissingTool(f"no network namespace: {holder.last_words()}")
            time.sleep(0.01)
        self.enter = ("nsenter", f"--net=/proc/{pid}/ns/net")
        device = f"assay{os.getpid()}n{next(_numbers)}"[:15]
        self._outside, self.address = _two_addresses()
        _ip("link", "add", device, "type", "veth", "peer", "name", _INSIDE, "netns", str(pid))
        # With the namespace it goes too, but a moment later than its last process.
        self._stack.callback(_removed, device)
        _ip("addr", "add", f"{self._outside}/30", "dev", device)
        _ip("link", "set", device, "up")
        self._inside("addr", "add", f"{self.address}/30", "dev", _INSIDE)
        self._inside("link", "set", _INSIDE, "up")
        self._inside("link", "set", "lo", "up")
        # Rules are looked at in order, and what is for this host itself comes first by default.
        self._inside("rule", "add", "pref", str(_LOCAL), "lookup", "local")
        self._inside("rule", "del", "pref", "0")

    def _inside(self, *words: str) -> None:
        _run([*self.enter, "ip", "-4", *words])


def _port(word: str, port: int | None) -> list[str]:
    return [word, str(port)] if port else []


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError as error:
        raise MissingTool(f"no network namespace: {error}") from None


def possible() -> bool:
    """Whether this machine and account can make such a network and cut it."""
    network = CutNetwork()
    try:
        network.open()
        with network.cut([1]):
            pass
    except ServerError:
        return False
    finally:
        network.close()
    return True


def _two_addresses() -> tuple[str, str]:
    """Both ends of a private network of four addresses that nothing here has a route to."""
    shown = [*json.loads(_ip("-json", "-4", "route", "show", "table", "all"))]
    known = [ipaddress.ip_network(route["dst"]) for route in shown if route["dst"] != "default"]
    first = int(ipaddress.ip_address("10.64.0.0"))
    # Two programs that look at the same moment look at different places.
    for step in range(1 << 12):
        base = first + 4 * ((os.getpid() + step) % (1 << 20))
        wanted = ipaddress.ip_network((base, 30))
        if not any(wanted.overlaps(route) for route in known):
            return str(wanted[1]), str(wanted[2])
    raise ServerError("no free private addresses for a network")


def _removed(device: str) -> None:
    with suppress(ServerError):
        _ip("link", "del", device)


def _ip(*words: str) -> str:
    return _run(["ip", *words])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(list(command), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["failed"])[-1]
        raise ServerError(f"{' '.join(command)}: {reason}")
    return done.stdout
