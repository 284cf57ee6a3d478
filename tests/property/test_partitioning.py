"""Keys are placed as Kafka's own producers place them: one wallet, one partition, X.2."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from assay_runtime.partitioning import murmur2, partition_of


@given(st.binary(max_size=100))
def test_the_hash_is_the_reference_hash(key: bytes) -> None:
    """X.2: any length, so that every remainder of four is met."""
    assert murmur2(key) == reference(key)


@given(st.binary(min_size=1, max_size=60), st.integers(1, 100))
def test_the_partition_is_the_clients_own(key: bytes, partitions: int) -> None:
    """X.2: a publisher in another process places the same wallet in the same partition."""
    every = list(range(partitions))
    assert partition_of(key, partitions) == DefaultPartitioner()(key, every, every)


@pytest.mark.parametrize(
    ("key", "java"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
     (b"a-little-bit-longer-string", -1486304829), (b"abc", 479470107)],
)  # fmt: skip
def test_vectors_of_kafkas_own_tests(key: bytes, java: int) -> None:
    """org.apache.kafka.common.utils.UtilsTest, which says them as signed numbers."""
    assert murmur2(key) == java & 0xFFFFFFFF
