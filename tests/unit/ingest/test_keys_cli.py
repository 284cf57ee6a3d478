"""`assay keys` (issue 5 item 3)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from assay_runtime.failures import Stop
from services.ingest.adapters.keys_postgres import PostgresKeys
from services.ingest.domain.api_keys import parse_key
from services.ingest.keys import ring
from services.ingest.keys.access import Access, AccessRefused
from services.ingest.keys.cli import app, duration_ms
from services.ingest.keys.store import open_key_store


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Keys = Callable[..., Answer]


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No stack and no settings but the test's own; returns where a stack leaves its addresses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("ASSAY_INGEST__STORE", "ASSAY_INGEST__STORE_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / f"assay-{os.getuid()}"
    folder.mkdir()
    return folder / "stack.json"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of an `assay up --data` that ran once."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("requests.sqlite", "requests.keys.sqlite"):
        (folder / name).touch(mode=0o600)
    return folder


def keys(*arguments: object) -> Answer:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def create(data: Path, *more: object) -> Any:
    return keys("create", "--tenant", "acme", "--name", "ci", "--data", data, "--json", *more).json


def listed(data: Path) -> list[Any]:
    return list(keys("list", "--data", data, "--json").json)


def test_a_key_is_shown_once_and_alone_on_stdout(data: Path) -> None:
    """So that KEY=$(assay keys create …) holds the key and nothing else."""
    made = keys("create", "--tenant", "acme", "--name", "ci", "--data", data)
    text = made.out.removesuffix("\n")
    assert made.code == 0
    assert parse_key(text) is not None
    assert text[23:] not in made.err
    assert str(data / "requests.keys.sqlite") in made.err
    shown = [keys("list", "--data", data, *more) for more in ((), ("--json",))]
    for answer in shown:
        assert text[:22] in answer.out
        assert text[23:] not in answer.out + answer.err
        assert "digest" not in answer.out


def test_what_was_asked_for_is_what_is_kept(data: Path) -> None:
    made = create(
        data, "--process", "p", "--process", "q", "--expires", "90d", "--rate", 6, "--burst", 2,
        "--concurrency", 1,
    )  # fmt: skip
    key = made.pop("key")
    assert key.startswith(made["prefix"] + "_")
    created, expires = (datetime.fromisoformat(made[f"{n}_at"]) for n in ("created", "expires"))
    assert (expires - created).days == 90
    assert listed(data) == [made]
    assert {n: made[n] for n in ("id", "tenant", "name", "processes", "state")} == {
        "id": key[10:22], "tenant": "acme", "name": "ci", "processes": ["p", "q"],
        "state": "active",
    }  # fmt: skip
    assert (made["rate_per_min"], made["burst"], made["concurrency"]) == (6, 2, 1)
    plain = create(data)
    assert (plain["processes"], plain["expires_at"], plain["rate_per_min"]) == (["*"], None, None)
    assert [key["id"] for key in listed(data)] == [plain["id"], made["id"]]


def test_the_list_for_people_cuts_nothing(data: Path) -> None:
    """Prefixes are copied from it, however narrow the terminal is; brackets are no markup."""
    made = create(data, "--name", "[bold]" + "x" * 100, "--rate", 6)
    heading, line = keys("list", "--data", data).out.splitlines()
    assert heading.split()[:3] == ["prefix", "state", "tenant"]
    assert line.split()[:3] == [made["prefix"], "active", "acme"]
    assert "[bold]" + "x" * 100 in line
    assert "6/min" in line


def test_an_empty_list_says_where_it_looked(data: Path) -> None:
    answer = keys("list", "--data", data)
    assert (answer.code, answer.out) == (0, "")
    assert "requests.keys.sqlite" in answer.err
    assert listed(data) == []


def test_a_revoked_key_as_json(data: Path) -> None:
    """One object, as `list --json` shows it, without what is secret; again it is the same."""
    made = create(data)
    answer = keys("revoke", made["key"], "--data", data, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert listed(data) == [answer.json]
    assert (answer.json["state"], answer.json["revoked_at"] is None) == ("revoked", False)
    assert made["key"][23:] not in answer.out
    assert keys("revoke", made["id"], "--data", data, "--json").json == answer.json
    unknown = keys("revoke", "a" * 12, "--data", data, "--json")
    assert (unknown.code, unknown.out) == (1, "")


@pytest.mark.parametrize("which", ["id", "prefix", "key"])
def test_revoke_by_id_prefix_or_whole_key(data: Path, which: str) -> None:
    """A leaked key is revoked with what somebody has: the key."""
    made, other = create(data), create(data)
    answer = keys("revoke", made[which], "--data", data)
    assert (answer.code, answer.out) == (0, "")
    assert made["key"][23:] not in answer.err
    assert keys("revoke", made[which], "--data", data).code == 0
    assert {key["id"]: key["state"] for key in listed(data)} == {
        made["id"]: "revoked",
        other["id"]: "active",
    }


def test_rotate(data: Path) -> None:
    """Issue 5: a successor, and an end for the old key."""
    made = create(data, "--process", "p", "--rate", 6)
    fresh = keys("rotate", made["prefix"], "--overlap", "2h", "--data", data, "--json").json
    assert parse_key(fresh.pop("key")) is not None
    assert fresh["replaces"] == made["id"]
    same = ("tenant", "name", "processes", "rate_per_min", "state")
    assert {n: fresh[n] for n in same} == {n: made[n] for n in same}
    assert fresh["expires_at"] is None
    old = next(key for key in listed(data) if key["id"] == made["id"])
    left = datetime.fromisoformat(old["expires_at"]) - datetime.fromisoformat(fresh["created_at"])
    assert left.total_seconds() == 7200
    longer = keys("rotate", fresh["id"], "--expires", "30d", "--data", data, "--json").json
    assert longer["expires_at"] is not None
    assert keys("rotate", longer["id"], "--overlap", "0s", "--data", data).code == 0
    states = {key["id"]: key["state"] for key in listed(data)}
    assert states[longer["id"]] == "expired"


def test_a_dead_key_is_not_rotated(data: Path) -> None:
    made = create(data)
    keys("revoke", made["id"], "--data", data)
    answer = keys("rotate", made["id"], "--data", data)
    assert (answer.code, answer.out) == (1, "")
    assert "revoked" in answer.err
    assert len(listed(data)) == 1


@pytest.mark.parametrize("command", ["revoke", "rotate"])
def test_a_key_that_is_not_there(data: Path, command: str) -> None:
    answer = keys(command, "assay_key_aaaaaaaaaaaa", "--data", data)
    assert (answer.code, answer.out) == (1, "")
    assert "there is no key aaaaaaaaaaaa" in answer.err
    mistyped = create(data)["key"] + "x"
    answer = keys(command, mistyped, "--data", data)
    assert answer.code == 2
    assert mistyped[23:40] not in answer.err, "a secret was repeated"


@pytest.mark.parametrize(
    "wrong",
    [
        ("create", "--name", "n"),
        ("create", "--tenant", "t"),
        ("create", "--tenant", "", "--name", "n"),
        ("create", "--tenant", "t", "--name", "n", "--expires", "5y"),
        ("create", "--tenant", "t", "--name", "n", "--rate", "0"),
        ("create", "--tenant", "t", "--name", "n", "--process", ""),
        ("revoke",),
        ("rotate", "nonsense"),
        ("list", "--store", "mysql://h/x"),
        ("list", "--data", "data", "--store", "sqlite:///x"),
    ],
)
def test_wrong_usage(wrong: tuple[str, ...], data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data.parent)
    monkeypatch.setenv("ASSAY_INGEST__STORE", f"sqlite:///{data}/requests.sqlite")
    answer = keys(*wrong)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err


def test_durations() -> None:
    assert [duration_ms(text) for text in ("0s", "90s", "30m", "24h", "90d", "4w")] == [
        0, 90_000, 1_800_000, 86_400_000, 7_776_000_000, 2_419_200_000,
    ]  # fmt: skip
    for text in ("", "1", "-1d", "1.5h", "1y", "999999w", "1dd"):
        with pytest.raises(typer.BadParameter):
            duration_ms(text)


def test_without_a_store_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in a place nobody reads would be a riddle; so is a folder made by a typing mistake."""
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    nowhere = keys("create", "--tenant", "t", "--name", "n")
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "no stack is running" in nowhere.err
    assert keys("list", "--data", tmp_path / "dta").code == 2
    assert keys("list", "--store", f"sqlite:///{tmp_path}/dta/requests.sqlite").code == 2
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", [("list",), ("list", "--json"), ("revoke",), ("rotate",)])
def test_a_store_is_made_by_create_only(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A folder of something else stays as it is, and is not taken for a store without keys."""
    (tmp_path / "requests.sqlite").touch()
    before = set(tmp_path.rglob("*"))
    which = () if command[0] == "list" else ("a" * 12,)
    answer = keys(*command, *which, "--data", tmp_path)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (
        f"assay keys: there is no store {tmp_path}/requests.keys.sqlite; it is made by ingest and "
        "by `assay keys create`\n"
    )
    assert set(tmp_path.rglob("*")) == before
    create(tmp_path)
    assert keys(*command, *which, "--data", tmp_path).code == (0 if which == () else 1)
    assert len(listed(tmp_path)) == 1


def test_where_the_store_is_found(
    data: Path, tmp_path: Path, nothing_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option, else ingest's own setting, also as a file, else the running stack."""

    def place(*options: str) -> str:
        told = keys("list", *options).err.strip()
        return told.removeprefix("assay keys: there is no store ").partition(";")[0]

    def folder(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    stack = folder("stack")
    nothing_runs.write_text(json.dumps({"pid": os.getpid(), "data": str(stack)}))
    assert place() == f"{stack}/requests.keys.sqlite"
    setting = tmp_path / "setting"
    setting.write_text(f"sqlite:///{folder('file')}/r.sqlite\n")
    monkeypatch.setenv("ASSAY_INGEST__STORE_FILE", str(setting))
    assert place() == f"{tmp_path}/file/r.keys.sqlite"
    monkeypatch.delenv("ASSAY_INGEST__STORE_FILE")
    monkeypatch.setenv("ASSAY_INGEST__STORE", f"sqlite:///{folder('env')}/r.sqlite")
    assert place() == f"{tmp_path}/env/r.keys.sqlite"
    assert place("--data", str(data)) == f"no keys in {data}/requests.keys.sqlite"
    other = folder("url")
    assert place("--store", f"sqlite:///{other}/x.db") == f"{other}/x.keys.db"
    nothing_runs.write_text(json.dumps({"pid": 2**22 + 1, "data": str(stack)}))
    monkeypatch.delenv("ASSAY_INGEST__STORE")
    assert "no stack is running" in place()


def test_a_folder_that_no_ingest_has_used_is_remarked(tmp_path: Path, data: Path) -> None:
    """Made beforehand is fine, in the wrong folder is not; the command cannot know which."""
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    made = keys("create", "--tenant", "t", "--name", "n", "--data", fresh)
    assert made.code == 0
    assert "no ingest has worked on" in made.err
    assert "no ingest" not in keys("create", "--tenant", "t", "--name", "n", "--data", data).err


def test_a_store_that_is_away(data: Path, unused_tcp_port: int) -> None:
    """Exit 1 and one line, without the password."""
    answer = keys("list", "--store", f"postgresql://u:hunter2@127.0.0.1:{unused_tcp_port}/db")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("assay keys: API keys: PostgreSQL:")
    assert "hunter2" not in answer.err
    (data / "requests.keys.sqlite").write_bytes(b"this is no database " * 100)
    answer = keys("list", "--data", data)
    assert (answer.code, answer.out) == (1, "")
    assert "not a database" in answer.err


def test_a_store_that_became_another(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failover while it works: one line, no traceback."""

    async def lost(store: object) -> None:
        raise Stop("PostgreSQL for the API keys is not the server it was")

    monkeypatch.setattr(PostgresKeys, "keys", lost)
    answer = keys("list", "--store", postgres_url)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.strip() == "assay keys: PostgreSQL for the API keys is not the server it was"


def test_on_postgresql(postgres_url: str) -> None:
    made = keys("create", "--tenant", "t", "--name", "n", "--store", postgres_url)
    assert parse_key(made.out.strip()) is not None
    assert "PostgreSQL" in made.err
    assert made.out.strip()[:22] in keys("list", "--store", postgres_url).out


async def test_against_a_running_service(data: Path) -> None:
    """Issue 5: the service has the table open; what the command does acts within seconds."""
    now = [1_000_000_000_000]
    url = f"sqlite:///{data}/requests.sqlite"
    access = Access(open_key_store(url), monotonic_ns=lambda: now[0])
    await access.open()

    async def admitted(key: str) -> str:
        try:
            async with access.admit({"x-api-key": key}, "p") as caller:
                return caller.tenant_id
        except AccessRefused as refused:
            return refused.code

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from services.ingest.keys.cli import app; app()", *arguments],
            env={**os.environ, "ASSAY_INGEST__STORE": url},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    key = await asyncio.to_thread(command, "create", "--tenant", "acme", "--name", "ci")
    assert await admitted(key) == "acme"
    assert '"last_used_at": "20' in await asyncio.to_thread(command, "list", "--json")
    successor = await asyncio.to_thread(command, "rotate", key[:22])
    assert [await admitted(text) for text in (key, successor)] == ["acme", "acme"]
    await asyncio.to_thread(command, "revoke", key)
    now[0] += int((ring.FRESH_S + 0.1) * 1e9)
    assert [await admitted(text) for text in (key, successor)] == ["API_KEY_REVOKED", "acme"]
    await access.close()
