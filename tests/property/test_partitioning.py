"""Keys are placed as Kafka's own producers place them: one wallet, one partition, X.2."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from assay_runtime.partitioning import murmur2, partition_of, partitions_of


@given(st.binary(max_size=100))
def test_the_hash_is_the_reference_hash(key: bytes) -> None:
    """X.2: any length, so that every remainder of four is met."""
    assert murmur2(key) == reference(key)


@given(st.binary(min_size=1, max_size=60), st.integers(1, 100))
def test_the_partition_is_the_clients_own(key: bytes, partitions: int) -> None:
    """X.2: a publisher in another process places the same wallet in the same partition."""
    every = list(range(partitions))
    assert partition_of(key, partitions) == DefaultPartitioner()(key, every, every)


@given(
    st.integers(0, 50).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=16, max_size=40)
    ),
    st.lists(st.binary(max_size=9), max_size=40),
    st.integers(1, 100),
)
def test_many_keys_are_placed_as_each_alone(
    alike: list[bytes], others: list[bytes], partitions: int
) -> None:
    """X.2: keys of one length are hashed together, any number of them."""
    keys = [*alike, *others, *(key.ljust(50, b"\xff") for key in others * 9)]
    assert partitions_of(keys, partitions) == {key: partition_of(key, partitions) for key in keys}


@pytest.mark.parametrize("count", [1, 15, 16, 255, 256, 257, 1_500])
def test_no_key_is_changed_by_its_neighbours(count: int) -> None:
    """X.2: whatever stands in the lanes beside it, in whole chunks and in the rest of them."""
    extremes = [b"\xff" * 42, b"\x00" * 42]
    keys = [*extremes, *(b"0x%040x" % (number << 90) for number in range(count - 2))][:count]
    assert partitions_of(keys, 97) == {key: reference(key) % 2**31 % 97 for key in keys}


@pytest.mark.parametrize(
    ("key", "java"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
     (b"a-little-bit-longer-string", -1486304829), (b"abc", 479470107)],
)  # fmt: skip
def test_vectors_of_kafkas_own_tests(key: bytes, java: int) -> None:
    """org.apache.kafka.common.utils.UtilsTest, which says them as signed numbers."""
    assert murmur2(key) == java & 0xFFFFFFFF
