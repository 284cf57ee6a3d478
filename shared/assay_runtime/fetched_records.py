"""Our records straight from a fetched batch, without aiokafka's own in between.

For consumers that ask for it by their key deserializer; others of the process get aiokafka's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher

from assay_runtime.records import Record


def as_records(key: bytes) -> bytes:
    """The key deserializer of a consumer whose records are to be ours."""
    return key


class _PartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        # The generator itself; aiokafka's way costs a call more for every record.
        iterator: Iterator[Any] = self._records_iterator
        return iterator

    def again(self) -> None:
        """Go on with a batch that had to wait; saying so has ended the iterator."""
        self._records.again()
        self._records_iterator = self._unpack_records()

    def _consumer_record(self, tp: Any, record: Any) -> Any:
        if self._key_deserializer is not as_records:
            return super()._consumer_record(tp, record)
        return Record(
            tp.topic,
            tp.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple(record.headers),
        )


def install() -> None:
    """For every consumer that is made from now on."""
    fetcher.PartitionRecords = _PartitionRecords
