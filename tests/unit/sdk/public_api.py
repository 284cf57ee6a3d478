"""The SDK as its users type it. Checked by mypy, never executed: see test_public_api.py."""

from __future__ import annotations

from typing import Any, assert_type

from assay import (
    Catalogue,
    Example,
    Outcome,
    Outcomes,
    PublicKey,
    Topic,
    WalletAddress,
    WalletPublisher,
    WalletScoreSigned,
    catalogue,
    flat_score,
    iter_examples,
    load_schema,
    parse_address,
    parse_hex_key,
    read_outcome,
    submission_from_record,
    verify_score,
)


async def publish_and_follow() -> None:
    async with WalletPublisher("host:9092", source="/shop", deadline_s=10) as publisher:
        assert_type(publisher, WalletPublisher)
        assert_type(await publisher.publish({"address": "0x"}, event_id="1"), str)
        await publisher.publish("0x")  # type: ignore[arg-type]
    async with Outcomes("host:9092", start="earliest", scores_only=True) as outcomes:
        async for outcome in outcomes:
            assert_type(outcome, Outcome)
            assert_type(outcome.score, dict[str, Any] | None)
            outcome.status = "signed"  # type: ignore[misc]
    Outcomes("host:9092", start="middle")  # type: ignore[arg-type]


def read_and_verify(event: WalletScoreSigned, line: dict[str, Any]) -> None:
    assert_type(read_outcome("topic", b"", [("ce_id", b"1"), ("x", None)]), Outcome | None)
    assert_type(flat_score(event), dict[str, Any])
    assert_type(event.score, int)
    key = parse_hex_key("02")
    assert_type(key, PublicKey)
    verify_score(key.data, b"", score=1, wallet_address="0x", timestamp_ms=1)
    verify_score(key.data, b"", score="1", wallet_address="0x", timestamp_ms=1)  # type: ignore[arg-type]


def contracts() -> None:
    assert_type(catalogue(), Catalogue)
    assert_type(catalogue()["wallet.score.signed.v1"], Topic)
    assert_type(load_schema("wallet.score.signed.v1"), dict[str, Any])
    assert_type([e for e in iter_examples()], list[Example])  # noqa: C416
    assert_type(parse_address("0x"), WalletAddress)
    assert_type(submission_from_record({}), dict[str, Any])
