"""An environment of its own for rivals that pin older libraries than the project.

quixstreams wants pydantic below 2.14 and confluent-kafka below 2.13. Holding the product back for
a benchmark, or breaking the rival's pins, would both be wrong.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

_FOLDER = Path("build/bench/rivals")
_REQUIREMENTS = Path(__file__).with_name("rivals-requirements.txt")


def rival_python(say: Callable[[str], None]) -> Path:
    """Its interpreter, installed when it is not there; OSError says why it cannot be."""
    stamp = _FOLDER / ".installed"
    wanted = _REQUIREMENTS.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return _FOLDER.absolute() / "bin" / "python"
    say(f"installing {_REQUIREMENTS.name} into {_FOLDER}")
    venv.create(_FOLDER, with_pip=True, clear=True)
    python = _FOLDER.absolute() / "bin" / "python"
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q",
         "-r", str(_REQUIREMENTS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise OSError(f"{_REQUIREMENTS.name} cannot be installed for {sys.version[:6]}: {reason}")
    stamp.write_text(wanted, encoding="utf-8")
    return python
