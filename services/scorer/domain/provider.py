"""The port to a model: one call, one reply, and how a call fails.

ModelError
├── ModelUnavailable       an outage and no record's failure, unless others are answered meanwhile
│   │                      (see `own_failures`): wait, probe, repeat the call
│   ├── ConnectionLost     it broke after the request was sent; repeated a few times only
│   ├── BadGateway         502: a proxy got no reply
│   ├── ModelMisconfigured 401, 403, 404 (model not found): every record would fail alike
│   └── PatienceExhausted  the endpoint was away longer than the patience; answer `unavailable`
└── AttemptFailed          this call brought no answer to judge and costs its attempt
    ├── ModelTimeout       the total deadline passed
    ├── ModelRefused       400, 413, 422 …: the backend will not take this very request
    ├── ModelServerError   500, 504 …: the backend failed on it
    └── ModelProtocolError 200 with what is no reply, or an error inside it
        └── EmptyAnswer    a reply without any text

A reply cut off by length or withheld by a filter is no error of the call: `finish_reason` says so
and the attempt counts as failed (see `answering`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


class ModelError(Exception):
    """Root of the tree. The message is written for a person, one line, without secrets.

    `seconds` is how long the call took, None where none was made.
    """

    code = "model_error"

    def __init__(self, message: str, *, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class ModelUnavailable(ModelError):
    """Nothing answers: connection refused, or 429, 502, 503 after the transport's retries."""

    code = "model_unavailable"


class ConnectionLost(ModelUnavailable):
    """The connection broke after the request was sent; the backend may have died on it."""

    code = "connection_lost"


class BadGateway(ModelUnavailable):
    """A proxy got no reply of the backend, which may be away or have died on the request."""


class ModelMisconfigured(ModelUnavailable):
    """The model does not exist there, or the key is not accepted."""

    code = "model_misconfigured"


class PatienceExhausted(ModelUnavailable):
    """The endpoint has been away for longer than the patience (DESIGN §5)."""

    code = "model_unavailable"


class AttemptFailed(ModelError):
    """The call brought no answer; it is this attempt's failure."""

    code = "attempt_failed"


class ModelTimeout(AttemptFailed):
    """The total deadline passed: one hang costs one attempt."""

    code = "model_timeout"


class ModelRefused(AttemptFailed):
    """The backend refuses this request."""

    code = "model_refused"


class ModelServerError(AttemptFailed):
    """The backend failed on this request."""

    code = "model_server_error"


class ModelProtocolError(AttemptFailed):
    """A reply that is none: no JSON, a missing field, too large, an error in mid-stream."""

    code = "model_protocol_error"


class EmptyAnswer(ModelProtocolError):
    """A well-formed reply without text, as thinking models and broken parsers give it."""

    code = "empty_answer"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One question. `wire_schema` None asks for any JSON; `deadline_s` covers retries and all.

    Tokens are counted by the backend; `num_ctx` (prompt and answer together) binds Ollama only.
    """

    prompt: str
    wire_schema: dict[str, Any] | None
    temperature: float
    seed: int
    max_tokens: int
    num_ctx: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What came back, untouched. `usage` holds prompt_tokens and completion_tokens if told.

    `seconds` is how long the call took; it is no part of what the model said.
    """

    raw: str
    model: str
    model_digest: str
    finish_reason: str | None
    usage: dict[str, int] = field(default_factory=dict)
    seconds: float | None = field(default=None, compare=False)


Verdict = Literal["obeyed", "ignored", "unreachable"]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether the backend answers, and whether it obeys the grammar it is sent."""

    verdict: Verdict
    detail: str


class Provider(Protocol):
    """A model behind one endpoint. Raises ModelError only, and CancelledError when cancelled.

    `model_digest` names the weights as last told: "unknown" where the server tells none, None
    where it was not asked yet.
    """

    name: str
    model: str

    @property
    def model_digest(self) -> str | None: ...

    async def generate(self, call: ModelCall) -> ModelReply: ...

    async def probe(self) -> ProbeResult: ...

    async def aclose(self) -> None: ...
