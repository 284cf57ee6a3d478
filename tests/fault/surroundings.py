"""What a run has beside the stack and can take away from it: the aggregator, a disk for the
ledger, a PostgreSQL for all stores, a broker behind a wire that can be cut."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.kafka.broker import Broker
from deploy.kafka.cut_network import CutNetwork
from deploy.kafka.postgres_server import PostgresServer, find_binaries
from deploy.owned_process import MissingTool, start_mark
from tests.e2e.outside import ScriptedAggregator
from tests.fault.running_stack import SERVICES
from tests.fault.stores import StoreUrls

BOOTSTRAP = "ASSAY_KAFKA__BOOTSTRAP"
_DISK_MB = 192
_PREFIX, _OWNER = "assay-run-beside-", "owner.json"
_VARIABLES = {
    "ledger": "ASSAY_SIGNER__LEDGER",
    "evidence": "ASSAY_EVIDENCE__STORE",
    "requests": "ASSAY_INGEST__STORE",
}


class Disk:
    """A small disk of its own in memory (tmpfs), which can be full; needs root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def mount(self) -> bool:
        """Whether it is there; no root or no such system call is no disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m", "tmpfs", str(self.folder)]
        return shutil.which("mount") is not None and _quietly(command)

    def unmount(self) -> None:
        _quietly(["umount", "-l", str(self.folder)])

    def fill(self) -> None:
        """Not a byte is left for anybody."""
        block = b"\0" * 1_048_576
        with suppress(OSError), self._filler.open("wb", buffering=0) as filler:
            while block:
                try:
                    filler.write(block)
                except OSError:
                    block = block[: len(block) // 2]

    def clear(self) -> None:
        self._filler.unlink(missing_ok=True)


def _quietly(command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode == 0


@dataclass(slots=True)
class Surroundings:
    """What this run has not is None; `settings` replace the stack's."""

    aggregator: ScriptedAggregator
    disk: Disk | None
    postgres: PostgresServer | None
    settings: dict[str, str]
    broker: Broker | None = None
    network: CutNetwork | None = None

    def stores(self, data: Path) -> StoreUrls:
        """Where the stack that keeps its data there has its stores."""
        files = StoreUrls.under(data)
        return StoreUrls(
            ledger=self.settings.get(_VARIABLES["ledger"], files.ledger),
            evidence=self.settings.get(_VARIABLES["evidence"], files.evidence),
            requests=self.settings.get(_VARIABLES["requests"], files.requests),
        )


def postgres_possible() -> bool:
    """Whether this machine has a PostgreSQL to start."""
    try:
        find_binaries()
    except MissingTool:
        return False
    return True


def disk_possible() -> bool:
    """Whether this account may mount a disk of its own."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory(prefix="assay-disk-") as folder:
        disk = Disk(Path(folder) / "disk")
        mounted = disk.mount()
        if mounted:
            disk.unmount()
        return mounted


def sweep(temporary: Path) -> None:
    """Take away the disks and files of runs that are gone: with a kill -9 only processes end."""
    for folder in temporary.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
                continue
            owner = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
            gone = start_mark(owner["pid"]) != owner["started"]
        except (OSError, ValueError, KeyError):
            continue  # another run may be between making the folder and writing its name into it
        if gone:
            Disk(folder / "disk").unmount()
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def surroundings(
    stores: str, *, kafka: bool = False, wire: bool = False, data: Path | None = None
) -> Iterator[Surroundings]:
    """`stores` is "files" (where `assay up` puts them), "disk" (the ledger on a disk of its own),
    "postgres" (all three in one server) or "mixed" (the ledger on its disk, the others in the
    server). `kafka`: with a broker, on 127.0.0.1 or, with `wire`, in a network of its own where
    each service has a door; its files stay in `data` where that is given."""
    with ExitStack() as stack:
        found = Surroundings(stack.enter_context(ScriptedAggregator()), None, None, {})
        sweep(Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        folder.chmod(0o755)  # PostgreSQL's account must get in
        owner = {"pid": os.getpid(), "started": start_mark(os.getpid())}
        (folder / _OWNER).write_text(json.dumps(owner), encoding="utf-8")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if kafka:
            _with_broker(found, (data or folder) / "kafka", stack, wire=wire)
        if stores in ("postgres", "mixed"):
            found.postgres = PostgresServer(folder / "postgres", dies_with_parent=True)
            found.postgres.start()
            stack.callback(found.postgres.stop)
            for name, variable in _VARIABLES.items():
                found.settings[variable] = found.postgres.create_database(name)
        if stores in ("disk", "mixed"):
            found.disk = Disk(folder / "disk")
            if not found.disk.mount():
                raise MissingTool("a disk of its own needs root")
            stack.callback(found.disk.unmount)
            found.settings[_VARIABLES["ledger"]] = f"sqlite:///{folder}/disk/ledger.sqlite"
        yield found


def _with_broker(found: Surroundings, folder: Path, stack: ExitStack, *, wire: bool) -> None:
    if wire:
        found.network = CutNetwork()
        found.network.open()
        stack.callback(found.network.close)
    broker = found.broker = Broker(
        folder,
        dies_with_parent=True,
        network=found.network,
        doors=SERVICES if found.network else (),
    )
    broker.start()
    stack.callback(broker.stop)
    for service, port in broker.doors.items():
        host = broker.bootstrap.rpartition(":")[0]
        found.settings[f"{service} {BOOTSTRAP}"] = f"{host}:{port}"
