"""Writes requirements.lock: every third-party package of both distributions, with hashes.

`make lock` runs it. Our own two distributions are not in it, and no address is: the lock says
what, the installer's settings say from where.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = ("assay", "assay-services")


def wanted() -> list[str]:
    """Requirements of both distributions with every extra, and of their builds."""
    lines: set[str] = set()
    for file in (ROOT / "shared" / "pyproject.toml", ROOT / "pyproject.toml"):
        document = tomllib.loads(file.read_text(encoding="utf-8"))
        lines.update(document["build-system"]["requires"])
        lines.update(document["project"].get("dependencies", []))
        for extra in document["project"].get("optional-dependencies", {}).values():
            lines.update(extra)
    return sorted(line for line in lines if not line.startswith(tuple(f"{o}[" for o in OURS))
                  and not line.startswith(tuple(f"{o}=" for o in OURS)))  # fmt: skip


def main() -> None:
    """Compile the lock next to pyproject.toml."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "requirements.in"
        source.write_text("\n".join(wanted()) + "\n", encoding="utf-8")
        subprocess.run(
            [
                sys.executable, "-m", "piptools", "compile", "--quiet", "--generate-hashes",
                "--allow-unsafe", "--strip-extras", "--no-header", "--no-annotate",
                "--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host",
                "--output-file", str(ROOT / "requirements.lock"), str(source),
            ],
            check=True,
        )  # fmt: skip
    print(f"{len(wanted())} requirements locked")


if __name__ == "__main__":
    main()
