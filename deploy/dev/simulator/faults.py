"""Which calls go wrong, and how: one draw for the connection, one for the answer."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from random import Random

from deploy.dev.simulator.protocols import Call
from deploy.dev.simulator.settings import TRANSPORT, Behaviour

_REMEMBERED = 65_536


class Lottery:
    """Draws that repeat: the same seed and the same calls give the same faults.

    An answer's draw depends on the content of the call (prompt, schema, seed, temperature), so each
    attempt has its own, and a call that is repeated unchanged gets the same answer again. The
    connection's draw also depends on how often this very call came before, or a repeated call
    could never get past a 503. With draws "random" both depend on the order of calls alone.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._seen: OrderedDict[bytes, int] = OrderedDict()

    def ticket(self, call: Call, behaviour: Behaviour) -> Ticket:
        """The draws for one arrival of a call."""
        if behaviour.draws == "random":
            return Ticket(self._random.randbytes(16), self._random.randbytes(16))
        key = blake2b(digest_size=16)
        key.update(f"{behaviour.seed}\0{call.seed}\0{call.temperature}\0".encode())
        key.update(f"{call.schema}\0{call.prompt}".encode(errors="replace"))
        content = key.digest()
        arrivals = self._seen.pop(content, 0) + 1
        self._seen[content] = arrivals
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return Ticket(content, content + arrivals.to_bytes(4, "big"))


class Ticket:
    """Uniform numbers for one call: the same for `content`, new for every `arrival`."""

    def __init__(self, content: bytes, arrival: bytes) -> None:
        self._content = content
        self._arrival = arrival

    @property
    def seed(self) -> str:
        """What the answer's own random choices hang on."""
        return self._content.hex()

    def jitter(self) -> float:
        return _unit(self._arrival, b"jitter")

    def fault(self, call: Call, behaviour: Behaviour) -> str | None:
        """The name of the fault this call meets, if any."""
        if not _may_fail(call, behaviour):
            return None
        if behaviour.spare_probes and call.is_probe:
            return behaviour.always if behaviour.always in TRANSPORT else None
        if behaviour.always is not None:
            return behaviour.always
        rates = behaviour.rates
        connection = {name: rate for name, rate in rates.items() if name in TRANSPORT}
        answer = {name: rate for name, rate in rates.items() if name not in TRANSPORT}
        return _drawn(connection, _unit(self._arrival, b"connection")) or _drawn(
            answer, _unit(self._content, b"answer")
        )


def _may_fail(call: Call, behaviour: Behaviour) -> bool:
    if behaviour.spare_retries and call.is_retry:
        return False
    if behaviour.match_seed is not None and call.seed != behaviour.match_seed:
        return False
    return behaviour.match is None or behaviour.match in call.prompt


def _drawn(rates: dict[str, float], number: float) -> str | None:
    for name, rate in rates.items():
        number -= rate
        if number < 0:
            return name
    return None


def _unit(key: bytes, purpose: bytes) -> float:
    digest = blake2b(key, digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "big") / 2**64
