"""What is kept of a record, how it is hashed, shown and erased (DESIGN §7). Pure."""

from services.evidence.domain.appending import Stored, plan, unknown
from services.evidence.domain.entries import DEAD_LETTER, Entry, Row, entry_of, wallet_in
from services.evidence.domain.hashing import (
    SALT_BYTES,
    header_bytes,
    leaf_hash,
    read_header_bytes,
)
from services.evidence.domain.named_wallets import SUBMISSIONS
from services.evidence.domain.repeats import CONFLICT, Kept, seal_of

__all__ = [
    "CONFLICT",
    "DEAD_LETTER",
    "SALT_BYTES",
    "SUBMISSIONS",
    "Entry",
    "Kept",
    "Row",
    "Stored",
    "entry_of",
    "header_bytes",
    "leaf_hash",
    "plan",
    "read_header_bytes",
    "seal_of",
    "unknown",
    "wallet_in",
]
