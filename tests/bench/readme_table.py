"""A table that a command makes, on its way to the terminal or into the README; no other hand
writes between the marks `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def marked(name: str) -> re.Pattern[str]:
    """What stands between the marks of that name."""
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)


def tell(name: str, made: str) -> None:
    """Print the table, or with `--write` put it into the README."""
    if "--write" not in sys.argv[1:]:
        print(made, end="")
        return
    text = README.read_text(encoding="utf-8")
    README.write_text(marked(name).sub(lambda _: made, text), encoding="utf-8")
