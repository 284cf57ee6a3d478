"""PostgreSQL: a pool, migrations, and outages told apart from mistakes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg

from assay_runtime.failures import Pause
from assay_runtime.postgres_history import History
from assay_runtime.settings import SettingsError

# The server is away, shutting down, read-only, out of space or connections, or it asks for the
# transaction once more: no record is to blame.
_OUTAGE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a connection cut in mid-answer can look like
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.TransactionRollbackError,
    # A lock that is held, or a database that takes no connections while it is restored.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    # Statements of another's session: a pooler in transaction mode.
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
# Asking again would be answered alike until somebody changes the setting.
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    ValueError,
)
# The same once the store was open: a password is changed, a database restored. It is mended there,
# and no record is to blame either.
_MENDED_ELSEWHERE = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InternalServerError,
)
_COMMAND_S = 30.0
# An index over years of evidence; given up in the middle it would begin again at every try.
_MIGRATION_S = 6 * 3600.0
_CLOSE_S = 5.0
_WATCH_S = 10.0
# For a connection, and for giving one back.
_ACQUIRE_S = 10.0


class PostgresPool:
    """A small pool on one database; `what` names its use and its row in `schema_version`."""

    def __init__(self, url: str, migrations: Sequence[str], what: str) -> None:
        self._url = url
        self._migrations = migrations
        self._what = what
        self._pool: Any = None
        self._opened = False
        self._history = History(what)

    async def open(self) -> None:
        """Connect and bring the schema up to date; Pause while the server is away."""
        try:
            with _outages(self._what):
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=1,
                    max_size=4,
                    command_timeout=_COMMAND_S,
                    timeout=10,
                    init=self._history.check,
                )
            await self._migrate()
            self._opened = True
        except _REFUSED as error:
            raise SettingsError(f"PostgreSQL for the {self._what}: {error}") from error
        except BaseException:
            await self.close()
            raise

    async def _migrate(self) -> None:
        async with self.transaction() as connection:
            # One migrator at a time, whatever the number of replicas.
            await connection.execute("SELECT pg_advisory_xact_lock(7214000)", timeout=_MIGRATION_S)
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_version"
                " (what text PRIMARY KEY, version int NOT NULL)"
            )
            version = (
                await connection.fetchval(
                    "SELECT version FROM schema_version WHERE what = $1", self._what
                )
                or 0
            )
            if version > len(self._migrations):
                raise SettingsError(
                    f"the {self._what} tables were made by a newer version ({version}); this one "
                    f"knows {len(self._migrations)}"
                )
            for script in self._migrations[version:]:
                await connection.execute(script, timeout=_MIGRATION_S)
            await connection.execute(
                "INSERT INTO schema_version VALUES ($1, $2)"
                " ON CONFLICT (what) DO UPDATE SET version = $2",
                self._what,
                len(self._migrations),
            )

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await pool.close()
        except _OUTAGE:
            pool.terminate()

    async def watch(self) -> None:
        """Runs beside the service: a lost history is Stop, which must be met without work too,
        and behind a pooler no connection of ours need be cut by it."""
        while True:
            await asyncio.sleep(_WATCH_S)
            with contextlib.suppress(Pause):
                async with self.connection() as connection:
                    await self._history.check(connection)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A connection of the pool; outages inside the block become Pause."""
        if self._pool is None:
            raise Pause(self._what, "the database is not open")
        with _outages(self._what, _MENDED_ELSEWHERE if self._opened else ()):
            async with self._pool.acquire(timeout=_ACQUIRE_S) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """One transaction, committed when the block ends."""
        async with self.connection() as connection, connection.transaction():
            yield connection


@contextlib.contextmanager
def _outages(what: str, more: tuple[type[Exception], ...] = ()) -> Any:
    try:
        yield
    except asyncpg.ClientConfigurationError:
        raise  # an InterfaceError too, but no outage
    except (*_OUTAGE, *more) as error:
        # Giving back a connection that answers no more puts its TimeoutError in the place of the
        # cancellation, and who suppresses a Pause would go on for ever.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise Pause(what, f"PostgreSQL: {error or type(error).__name__}") from error
