"""What the bus has said so far of requests that are published, perhaps once more."""

from __future__ import annotations

from collections.abc import Container

from assay.client import Outcome

# A lower one after a higher one changes nothing: what was signed stays so, and a dead letter may
# have been mended and replayed.
_RANKS = {"dead_lettered": 0, "rejected": 1, "accepted": 2, "signed": 2}


class KnownOutcomes:
    """Of each request in `wanted` the outcome that counts, and apart from it a dead letter that
    anyone may have written."""

    def __init__(self, wanted: Container[str]) -> None:
        self.wanted = wanted
        self._found: dict[str, Outcome] = {}
        self._doubtful: dict[str, Outcome] = {}

    def note(self, outcome: Outcome) -> None:
        """Take one in; of what no service asked nothing is kept."""
        request = outcome.request_id
        if request not in self.wanted or outcome.unsealed:
            return
        if outcome.doubtful:
            self._doubtful[request] = outcome
            return
        known = self._found.get(request)
        if known is None or _RANKS[known.status] <= _RANKS[outcome.status]:
            self._found[request] = outcome

    def end(self, request: str) -> Outcome | None:
        """The end that stays, so that no other comes when it is published again. A dead letter
        is none: it is tried once more."""
        known = self._found.get(request)
        return None if known is None or known.status == "dead_lettered" else known

    def dead_letter(self, request: str) -> Outcome | None:
        """One that bears the request's id and was its end at most for a time."""
        return self._doubtful.get(request) or self._found.get(request)
