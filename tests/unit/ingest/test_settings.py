"""Settings of ingest."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.ingest.domain.limits import KEY_ALLOWANCE, TENANT_ALLOWANCE, Allowance
from services.ingest.settings import IngestSection


def test_limits_are_those_of_the_specification() -> None:
    """S3.8, X.5: 4 MiB, 64 deep, 200,000 elements unless set otherwise."""
    limits = IngestSection().json_limits
    assert (limits.max_bytes, limits.max_depth, limits.max_elements) == (4_194_304, 64, 200_000)
    assert IngestSection(max_body_bytes=10).json_limits.max_bytes == 10


@pytest.mark.parametrize("url", ["ftp://x/{address}", "http://x/", "x"])
def test_a_bad_aggregator_url_is_refused(url: str) -> None:
    """Issue 3, "Bad input": at start, not at the first wallet."""
    with pytest.raises(ValidationError, match="aggregator URL"):
        IngestSection(aggregator_url=url)


def test_no_aggregator_is_a_setting() -> None:
    """S3.8: unset and empty both mean that data must come inline."""
    assert IngestSection().aggregator_url is None
    assert IngestSection(aggregator_url="").aggregator_url is None
    good = "https://x/{address}"
    assert IngestSection(aggregator_url=good).aggregator_url == good


def test_the_limits_of_keys_are_settings() -> None:
    """Issue 5 item 3: an operator's defaults for keys and tenants, each part at least 1."""
    assert (IngestSection().per_key, IngestSection().per_tenant) == (
        KEY_ALLOWANCE, TENANT_ALLOWANCE,
    )  # fmt: skip
    section = IngestSection(key_per_minute=1, key_burst=2, key_concurrency=3, tenant_per_minute=4,
                            tenant_burst=5, tenant_concurrency=6)  # fmt: skip
    assert (section.per_key, section.per_tenant) == (Allowance(1, 2, 3), Allowance(4, 5, 6))
    with pytest.raises(ValidationError):
        IngestSection(tenant_burst=0)
