"""The house rules hold, and each of them notices when it is broken (DESIGN §1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture import house_rules as rules
from tests.architecture.house_rules import Rule
from tests.architecture.imports import modules

REPO = Path(__file__).parents[2]

# A module here is to be split when it is next worked on; at most ten, and the list only shrinks.
LONG = {
    "shared/assay_gate/coerce.py": "one table of coercions, read from top to bottom",
    "shared/assay_gate/reader.py": "one recursive descent parser",
}

RULES: list[Rule] = [
    rules.import_arrows,
    rules.gate_is_pure,
    rules.sdk_speaks_to_kafka_behind_its_client,
    rules.domain_imports_are_pure,
    rules.domain_calls_are_pure,
    rules.outside_systems_behind_adapters,
    rules.services_show_the_same_faces,
    rules.no_drawers,
]

INIT = '"""Consumes a. Produces b. Guarantees c."""\n'
APP = 'NAME = "{}"\nCONSUMES = ()\nPRODUCES: tuple[str, ...] = ()\ndef build(): ...\n'


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small tree that keeps every rule."""
    for library in ("assay", "assay_gate", "assay_runtime"):
        write(tmp_path, f"shared/{library}/__init__.py", "")
    write(tmp_path, "shared/assay_gate/gate.py", "import json\nfrom assay import errors\n")
    write(tmp_path, "shared/assay_runtime/stage.py", "import aiokafka\nimport assay_gate\n")
    for service in ("ingest", "signer"):
        for face in rules.FACES:
            write(tmp_path, f"services/{service}/{face}", "")
        write(tmp_path, f"services/{service}/__init__.py", INIT)
        write(tmp_path, f"services/{service}/app.py", APP.format(service))
        write(tmp_path, f"services/{service}/domain.py", "import json\nimport assay.events\n")
        write(tmp_path, f"services/{service}/adapters/store_sqlite.py", "import sqlite3\n")
    write(tmp_path, "deploy/dev/stack.py", "import services.ingest\nimport socket\n")
    write(tmp_path, "tests/unit/test_x.py", "")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_the_house_keeps_the_rule(rule: Rule) -> None:
    assert rule(REPO) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_a_good_tree_has_no_breach(rule: Rule, house: Path) -> None:
    assert rule(house) == []


def test_the_tree_is_really_read() -> None:
    names = {module.name for module in modules(REPO)}
    assert {"assay.ids", "assay_gate.gate", "services.signer.app", "deploy.dev.broker"} <= names


ARROWS, PURE_GATE, CLIENT_ONLY, PURE_IMPORTS, PURE_CALLS, ADAPTERS, SAME_FACES, DRAWERS = RULES
GATE = "shared/assay_gate/"
HERE = "services/ingest/"
INGEST = HERE + "x.py"
DOMAIN = HERE + "domain.py"
DEEP = HERE + "domain/x.py"

PLANTED: list[tuple[Rule, str, str, str]] = [
    (ARROWS, "shared/assay/x.py", "import assay_gate", "assay.x imports assay_gate"),
    (ARROWS, "shared/assay/x.py", "from services.ingest import app", "imports services"),
    (ARROWS, GATE + "x.py", "import assay_runtime.stage", "assay_runtime"),
    (ARROWS, "shared/assay_runtime/x.py", "import services.signer", "services.signer"),
    (ARROWS, "shared/assay_runtime/x.py", "import deploy.dev", "deploy.dev"),
    (ARROWS, INGEST, "from services.signer import domain", "signer"),
    (ARROWS, INGEST, "from services import signer", "services.signer"),
    (ARROWS, INGEST, "from ..signer import domain", "services.signer"),
    (ARROWS, INGEST, "def f():\n    import deploy", "imports deploy"),
    (ARROWS, INGEST,
     "import importlib\nimportlib.import_module('services.signer.app')", "services.signer.app"),
    (ARROWS, INGEST,
     "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import services.signer", "signer"),
    (ARROWS, INGEST, "from tests.unit import x", "imports tests"),
    (PURE_GATE, GATE + "x.py", "import httpx", "httpx"),
    (PURE_GATE, GATE + "cli/x.py", "from urllib.request import urlopen", "urllib"),
    (PURE_GATE, GATE + "rules/x.py", "import subprocess", "subprocess"),
    (PURE_GATE, GATE + "rules/sandbox.py", "import socket", "socket"),
    (CLIENT_ONLY, "shared/assay/events/x.py", "import aiokafka", "aiokafka"),
    (PURE_IMPORTS, DOMAIN, "import aiokafka", "aiokafka"),
    (PURE_IMPORTS, DEEP, "import time", "time"),
    (PURE_IMPORTS, DEEP, "import random", "random"),
    (PURE_IMPORTS, DEEP, "from pathlib import Path", "path"),
    (PURE_IMPORTS, DEEP, "import assay_runtime", "runtime"),
    (PURE_IMPORTS, DEEP, "import numpy", "numpy"),
    (PURE_IMPORTS, DEEP, "from assay import client", "client"),
    (PURE_IMPORTS, DEEP,
     "from services.ingest.adapters import store_sqlite", "services.ingest.adapters"),
    (PURE_IMPORTS, DEEP, "from .. import settings", "settings"),
    (PURE_CALLS, DOMAIN,
     "import datetime\nx = datetime.datetime.now()", "domain:2 calls .now()"),
    (PURE_CALLS, DOMAIN, "import uuid\nuuid.uuid4()", "uuid4"),
    (PURE_CALLS, DEEP, "open('x')", "open"),
    (ADAPTERS, HERE + "handler.py", "import aiokafka", "aiokafka"),
    (ADAPTERS, HERE + "api.py", "import asyncpg", "asyncpg"),
    (SAME_FACES, HERE + "__init__.py", '"""Consumes, produces."""',
     "services/ingest/__init__.py does not say what it guarantees"),
    (SAME_FACES, HERE + "app.py", APP.format("signer"), "NAME is not"),
    (SAME_FACES, HERE + "app.py", 'NAME = "ingest"', "no CONSUMES"),
    (SAME_FACES, "services/advisor/app.py", APP.format("advisor"),
     "services/advisor has no handler.py"),
    (DRAWERS, "shared/assay/utils.py", "", "shared/assay/utils.py is a drawer"),
    (DRAWERS, HERE + "common/__init__.py", "", "common"),
    (DRAWERS, "tests/unit/helpers.py", "", "helpers"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "file", "text", "breach"),
    PLANTED,
    ids=[f"{rule.__name__}-{number}" for number, (rule, *_) in enumerate(PLANTED)],
)
def test_a_planted_breach_is_found(
    rule: Rule, file: str, text: str, breach: str, house: Path
) -> None:
    if "/domain/" in file:
        (house / "services/ingest/domain.py").unlink()
    write(house, file, text + "\n")
    found = rule(house)
    assert any(breach in line for line in found), found


@pytest.mark.parametrize("face", [*rules.FACES, "domain.py"])
def test_a_missing_face_is_found(face: str, house: Path) -> None:
    (house / "services/signer" / face).unlink()
    assert any(face in line for line in rules.services_show_the_same_faces(house))


def test_every_rule_has_a_planted_breach() -> None:
    assert {rule for rule, *_ in PLANTED} == set(RULES)


def test_modules_are_short() -> None:
    assert rules.modules_are_short(REPO, LONG) == []
    assert len(LONG) <= 10
    assert all(len(reason) > 10 for reason in LONG.values())


def test_a_long_module_and_a_stale_exception_are_found(house: Path) -> None:
    write(house, "services/ingest/handler.py", "x = 1\n\n" * 201)
    write(house, "services/signer/handler.py", "x = 1\n\n" * 200)
    excused = {"services/signer/handler.py": "no longer so"}
    assert rules.modules_are_short(house, excused) == [
        "services/ingest/handler.py has 201 lines",
        "services/signer/handler.py is no longer too long",
    ]
