"""What can go wrong while an instance is sought."""

from __future__ import annotations

_LONGEST_PATH = 80


class Unsatisfiable(Exception):
    """This way of reading a schema has no instance; another way may have one."""

    def __init__(self, keyword: str, path: str = "") -> None:
        super().__init__(keyword, path)
        self.keyword = keyword
        self.path = path

    def under(self, step: str) -> Unsatisfiable:
        """The same, seen from the parent."""
        return Unsatisfiable(self.keyword, step + self.path)


class Exhausted(Exception):
    """The search took more steps than one request is worth."""


class NoInstance(Exception):
    """No fitting instance was found; `keyword` is what stood in the way, at `path`."""

    def __init__(self, keyword: str, path: str) -> None:
        path = path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "…"
        super().__init__(f"no instance found that fits keyword {keyword!r} at {path}")
        self.keyword = keyword
        self.path = path
