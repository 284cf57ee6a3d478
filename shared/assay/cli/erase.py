"""`assay erase`: the text of a request or a wallet goes, its hashes stay (DESIGN section 7)."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Any

import typer

from assay.cli.evidence_access import (
    ERASURE,
    TOKEN_VARIABLE,
    EvidenceUrl,
    evidence_address,
    local_token,
)
from assay.cli.evidence_pages import EvidenceClient
from assay.cli.failures import ending_cleanly
from assay.errors import AssayError
from assay.wallet import parse_address


def erase(
    reason: Annotated[
        str, typer.Option(help="Why; kept for ever, so no personal data in it.")
    ],
    request_id: Annotated[
        str | None, typer.Option("--request-id", metavar="ID", help="All events of a request.")
    ] = None,
    wallet: Annotated[
        str | None, typer.Option(metavar="0x…", help="All events of a wallet.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Who erases; default: your login name.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    evidence: EvidenceUrl = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=["ASSAY_EVIDENCE__ERASURE_TOKEN", TOKEN_VARIABLE],
            help="Its erasure token; default: that of a stack started here.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Erase what evidence keeps of a request or a wallet: text, headers and salt.

    Hash, place, type, request id and wallet of every event stay, and so does the fact: who, when
    and why. It cannot be undone. An event that is read again from its topic stays erased; new
    events of the same wallet are kept as usual, so erase again for those.

    NOT erased here: Kafka's topics keep the text until their retention ends (topics.toml: 7 days,
    dead letters 30), the API's request table keeps results, the signer's ledger the signed
    scores, the scorer's memory answers until it restarts, PostgreSQL dead rows until VACUUM, and
    backups what they hold. A submission is of the wallet that its own `address` names. --wallet
    leaves, and --request-id erases, submissions with no address that can be read, neither there
    nor as `ce_subject` or key; and refused ones that an older version kept without a wallet.

    Exit codes: 0 erased, or there was nothing to erase; 1 it failed, or you said no; 2 wrong
    usage.
    """
    if (request_id is None) == (wallet is None):
        raise typer.BadParameter("give --request-id or --wallet", param_hint="--request-id")
    if not reason.strip():
        raise typer.BadParameter("a reason is needed", param_hint="--reason")
    asked: dict[str, Any] = {"reason": reason, "actor": actor or _login()}
    if wallet is not None:
        try:
            asked["wallet"] = str(parse_address(wallet))
        except AssayError as error:
            raise typer.BadParameter(str(error), param_hint="--wallet") from None
    else:
        asked["request_id"] = request_id
    address = evidence_address(evidence)
    with ending_cleanly("erase", pipe_code=0):
        client = EvidenceClient(address, token or local_token(address, ERASURE))
        found = client.erase({**asked, "dry_run": True}).get("rows")
        if not found:
            print("nothing to erase: no event of it is kept, or all are erased already")
            return
        if not yes:
            print(f"{found} events will be erased from {address}; this cannot be undone.")
            if not sys.stdin.isatty() or not typer.confirm("Erase them?"):
                print("assay erase: nothing was erased (--yes does not ask)", file=sys.stderr)
                raise typer.Exit(1)
        done = client.erase(asked)
        print(
            f"{done.get('rows')} events erased; on record as {', '.join(done.get('records', []))}"
        )


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unnamed"
