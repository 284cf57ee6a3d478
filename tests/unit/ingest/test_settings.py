"""Settings of ingest."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

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
