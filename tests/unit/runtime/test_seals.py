"""Seals tell a service's own record from a client's (ARCHITECTURE, decision 20)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from assay.envelope import Headers, Message, emit
from assay.events import GenerationRequested, Meta
from assay_runtime.seals import SEAL, TRUSTING, Doubt, Seals, SealsSection
from assay_runtime.settings import Settings, SettingsError, load

OLD, NEW, STRANGERS = (letter * 32 for letter in "ons")
META = Meta(request_id="6e3a2f0c-7c35-5b5e-9a41-0d8f6a1b2c3d", tenant_id="t")


class SealedSettings(Settings):
    seals: SealsSection = SealsSection()


def message(**given: Any) -> Message:
    event = GenerationRequested(meta=META, input=given)
    return emit(event, topic=event.type, source="/test", parent_id="parent")


def doubt(seals: Seals, sealed: Message, **changed: Any) -> Doubt | None:
    given = {"event_id": sealed.id, "headers": sealed.headers, "value": sealed.value, **changed}
    return seals.doubt(**given)


def loaded(environ: Mapping[str, str]) -> SealsSection:
    return load(SealedSettings, environ).seals


def test_the_seal_is_the_hmac_that_is_documented() -> None:
    """Decision 20: over the id and the value, behind a prefix of its own; the rest stays."""
    plain = message(text="hello")
    sealed = Seals([NEW.encode()]).put(plain)
    over = b"assay seal 1\n36:" + plain.id.encode() + plain.value
    made = hmac.new(NEW.encode(), over, hashlib.sha256).hexdigest().encode()
    assert sealed.headers == (*plain.headers, (SEAL, made))
    assert (sealed.topic, sealed.key, sealed.value) == (plain.topic, plain.key, plain.value)


def test_the_first_key_makes_and_every_key_checks() -> None:
    """Keys rotate: what the old one sealed is good for as long as it is listed."""
    old, rotated = Seals([OLD.encode()]), Seals([NEW.encode(), OLD.encode()])
    assert doubt(rotated, old.put(message())) is None
    assert doubt(rotated, rotated.put(message())) is None
    assert doubt(old, rotated.put(message())) == "wrong"
    assert doubt(Seals([NEW.encode()]), rotated.put(message())) is None


@given(st.text(max_size=8), st.text(max_size=8), st.binary(max_size=8), st.binary(max_size=70))
def test_nothing_but_the_record_itself_has_its_seal(
    before: str, after: str, value: bytes, forged: bytes
) -> None:
    """Another id, another value, another place of the border between them, another seal."""
    seals = Seals([NEW.encode()])
    sealed = seals.put(message(a=1))
    assert doubt(seals, sealed) is None
    other_id = before + sealed.id + after
    if other_id != sealed.id:
        assert doubt(seals, sealed, event_id=other_id) == "wrong"
    moved = sealed.id.encode() + sealed.value
    assert doubt(seals, sealed, event_id="", value=moved) == "wrong"
    if value:
        assert doubt(seals, sealed, value=sealed.value + value) == "wrong"
        assert doubt(seals, sealed, value=value) == "wrong"
    last: Headers = (*sealed.headers, (SEAL, forged))
    assert doubt(seals, sealed, headers=last) == "wrong", "the last of a name counts"


@pytest.mark.parametrize("seal", [b"", b"\xff", None, b"0" * 64], ids=repr)
def test_a_bad_seal_is_wrong_and_none_is_missing(seal: bytes | None) -> None:
    plain = message()
    seals = Seals([NEW.encode()])
    assert doubt(seals, plain, headers=((SEAL, seal),)) == "wrong"
    assert doubt(seals, plain) == "missing"
    assert doubt(seals, Seals([STRANGERS.encode()]).put(plain)) == "wrong"


def test_without_keys_nothing_is_sealed_and_nothing_doubted() -> None:
    assert TRUSTING.put(message()) == message()
    assert doubt(TRUSTING, message()) is None
    assert (bool(TRUSTING), bool(Seals([b"k"]))) == (False, True)


@pytest.mark.parametrize("text", [f"{NEW}\n{OLD}\n", f'["{NEW}", "{OLD}"]'], ids=["lines", "json"])
def test_keys_are_read_from_a_file_or_a_variable(tmp_path: Path, text: str) -> None:
    """Issue 3 item 4: a secret is a file on Kubernetes; one key a line, the first makes."""
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    for environ in ({"ASSAY_SEALS__KEYS": text}, {"ASSAY_SEALS__KEYS_FILE": str(file)}):
        made = Seals.of(loaded(environ)).put(message())
        assert made == Seals([NEW.encode()]).put(message())
        assert doubt(Seals.of(loaded(environ)), Seals([OLD.encode()]).put(message())) is None
    assert not Seals.of(loaded({}))


@pytest.mark.parametrize("text", ["", " \n", "[]", "short", f"{NEW}\nshort"])
def test_a_setting_that_protects_nothing_is_refused(text: str) -> None:
    """An empty secret must not turn the check off in silence; the value is not repeated."""
    with pytest.raises(SettingsError) as refused:
        loaded({"ASSAY_SEALS__KEYS": text})
    assert "ASSAY_SEALS__KEYS" in str(refused.value)
    assert "short" not in str(refused.value)


def test_a_service_without_seals_passes_the_section_over() -> None:
    """Issue 3 item 4: one ConfigMap serves all services."""
    assert load(Settings, {"ASSAY_SEALS__KEYS": NEW}) == Settings()


def test_the_secret_is_shown_nowhere() -> None:
    section = loaded({"ASSAY_SEALS__KEYS": NEW})
    with capture_logs() as logs:
        shown = [repr(section), str(section), section.model_dump_json(), repr(Seals.of(section))]
    assert NEW not in "".join(shown) + repr(logs)
