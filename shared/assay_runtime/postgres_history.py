"""Whether a PostgreSQL server still has what was committed to it before (SPEC X.2)."""

from __future__ import annotations

from typing import Any

import asyncpg
import structlog

from assay_runtime.failures import Pause, Stop

log = structlog.get_logger()

# A promoted standby begins a new timeline, another server has another identifier. The timeline of
# the control file would be the old one until the first checkpoint.
_ASK = """
    SELECT pg_is_in_recovery() AS in_recovery,
      (SELECT system_identifier FROM pg_control_system()) AS identifier,
      CASE WHEN pg_is_in_recovery() THEN NULL
        ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline
"""
_ASK_S = 5.0
_UNKNOWN = (
    asyncpg.UndefinedFunctionError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.InsufficientPrivilegeError,
)


class History:
    """The server's history as the first connection met it; `what` names the store.

    A failover to a standby that had not received the last commits forgets them without a word, and
    what was read from the old server is then no longer so. Asked of every new connection, since a
    pool replaces lost ones in silence.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._first: tuple[int, str] | None = None
        self._withheld = False

    async def check(self, connection: Any) -> None:
        """Stop where the history is another one, so that the restart reads everything anew;
        Pause on a standby, which takes no writes and may be promoted under the connection."""
        if self._withheld:
            return
        try:
            # Unnamed: behind a pooler the server may be another one than knows the name.
            statement = await connection.prepare(_ASK, name="", timeout=_ASK_S)
            row = await statement.fetchrow(timeout=_ASK_S)
        except _UNKNOWN as error:
            log.warning("failovers_go_unnoticed", what=self._what, error=str(error))
            self._withheld = True
            return
        if row["in_recovery"]:
            raise Pause(self._what, "PostgreSQL: this server is a standby")
        found = (row["identifier"], row["timeline"])
        if self._first is None:
            self._first = found
        elif found != self._first:
            raise Stop(
                f"PostgreSQL for the {self._what} is not the server it was (system identifier and "
                f"timeline {_said(self._first)}, now {_said(found)}): its last commits may be "
                "missing, and a restart finds what they were"
            )


def _said(history: tuple[int, str]) -> str:
    return f"{history[0]}/{int(history[1], 16)}"
