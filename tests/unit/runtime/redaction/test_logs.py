"""Logs of every service are redacted (SPEC S5.5, DESIGN §7)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[4]
WALLET = "0x52908400098527886E0F7030069857D2E4169EE7"
# A process of its own: configuring logs cannot be undone.
_PROGRAM = f"""
import logging, structlog
from assay_runtime.logging import configure
from assay_runtime.settings import LogSection
configure(LogSection(format="FORMAT"), "probe")
log = structlog.get_logger()
log.info("mail from a1@b.example", wallet="{WALLET}", raw='{{"to": "a2\\\\u0040b.example"}}',
         request_id="6f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f", nested={{"who": ["a3@b.example"]}},
         packed="YTRAYi5leGFtcGxl")
structlog.contextvars.bind_contextvars(caller="a5@b.example")
logging.getLogger("library").warning("cannot reach %s", "a6@b.example")
try:
    raise ValueError("no mailbox a7@b.example")
except ValueError:
    log.exception("failed")
    logging.getLogger("library").exception("failed for a8@b.example")
"""


@pytest.mark.parametrize("style", ["json", "console"])
def test_what_services_and_libraries_log_is_redacted(style: str) -> None:
    """S5.5: messages, fields, context, tracebacks and libraries' own logs, in both formats; the
    wallet and the request's id stay."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.replace("FORMAT", style)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    logged = done.stderr
    assert "b.example" not in logged
    assert "YTRAYi5leGFtcGxl" not in logged
    assert logged.count("[EMAIL]") >= 7
    assert WALLET in logged
    assert "6f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f" in logged
    if style == "json":
        lines = [json.loads(line) for line in logged.splitlines()]
        assert {line["service"] for line in lines} == {"probe"}


def test_no_service_logs_in_another_way() -> None:
    """S5.5: every service starts through the runtime, which configures its logs; none prints."""
    for entry in REPO.glob("services/*/__main__.py"):
        assert re.search(r"^main\(NAME, ", entry.read_text(encoding="utf-8"), re.M), entry
    for module in REPO.glob("services/*/**/*.py"):
        if module.name in ("cli.py", "shown.py"):
            continue
        text = module.read_text(encoding="utf-8")
        for way in (r"^\s*print\(", r"logging\.basicConfig", r"structlog\.configure",
                    r"StreamHandler", r"sys\.std(out|err)\.write"):  # fmt: skip
            assert not re.search(way, text, re.M), f"{module} logs past the redaction: {way}"
