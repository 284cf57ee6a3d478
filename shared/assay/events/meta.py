"""What every event carries: the base model and the `meta` object (DESIGN §2)."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Uuid = Annotated[
    str, Field(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
]
Address = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]
WalletKey = Annotated[str, Field(pattern=r"^0x[0-9a-f]{40}$")]


class Part(BaseModel):
    """A piece of an event: frozen, strict about types, open to fields it does not know."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")


class Meta(Part):
    """Identity, lineage and process of an event; record headers only mirror it.

    `causation_id` and `causation_sha256` name the parent event and the SHA-256 of its value
    bytes, so every signed score names its ancestors by hash (DESIGN §2).

    `unsealed` stands in what follows from a request that no service vouched for: the scorer sets
    it, whatever the request says, and no score is signed of it.
    """

    request_id: Uuid
    tenant_id: Annotated[str, Field(min_length=1, max_length=128)]
    wallet: WalletKey | None = None
    process_id: str | None = None
    process_version: str | None = None
    process_hash: Sha256 | None = None
    step: str | None = None
    unit_id: str | None = None
    attempt: Annotated[int, Field(ge=1)] = 1
    shadow: bool = False
    accepted_at_ms: Annotated[int, Field(ge=0)] | None = None
    causation_id: str | None = None
    causation_sha256: Sha256 | None = None
    unsealed: bool = False

    def caused_by(self, parent_id: str, parent_value: bytes, **changes: Any) -> Self:
        """This meta for an event made from `parent_value`, with `changes` on top."""
        return self.model_copy(
            update={
                "causation_id": parent_id,
                "causation_sha256": hashlib.sha256(parent_value).hexdigest(),
                **changes,
            }
        )


class Event(Part):
    """An event's value; `type` is its CloudEvents type and its schema's name."""

    type: ClassVar[str]

    def to_bytes(self) -> bytes:
        """The value as published. Bytes travel on unchanged; they are never re-serialised."""
        # model_dump_json() makes a text of these bytes, to be encoded once more.
        return self.__pydantic_serializer__.to_json(self)


class InternalEvent(Event):
    """An event between services; always with meta."""

    meta: Meta

    @property
    def key(self) -> str:
        """Record key: the wallet where there is one, else the request (DESIGN §1)."""
        return self.meta.wallet or self.meta.request_id
