"""The embedded broker: librdkafka's mock cluster, which speaks the Kafka protocol over TCP.

It ships in the confluent-kafka wheel and is driven through its C API. Records live in memory,
about 5 MB per partition, then the oldest goes without a word (DESIGN §8): for demos and tests.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import confluent_kafka

_PRODUCER = 0
_ERROR_BYTES = 512
_PRODUCE = 0
NOT_ENOUGH_REPLICAS = 19
"""The error of a refused write: every client waits a little and tries again."""


class EmbeddedBrokerError(Exception):
    """The library could not be loaded or refused a call."""


def _library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent
    found = sorted(folder.with_name("confluent_kafka.libs").glob("librdkafka*")) or sorted(
        folder.glob(".dylibs/librdkafka*")
    )
    if not found:
        raise EmbeddedBrokerError("the confluent-kafka wheel carries no librdkafka")
    lib = ctypes.CDLL(str(found[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [pointer, ctypes.c_int32]),
        # Followed by as many errors.
        (
            "rd_kafka_mock_partition_push_request_errors",
            number,
            [pointer, text, ctypes.c_int32, ctypes.c_int16, ctypes.c_size_t],
        ),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class EmbeddedBroker:
    """One mock broker on loopback with the given topics; `bootstrap` is its host:port."""

    def __init__(self, topics: Sequence[tuple[str, int]]) -> None:
        self._topics = topics
        self._lib = _library()
        self._handle: int | None = None
        self._cluster: int | None = None
        self.bootstrap = ""

    def start(self) -> EmbeddedBroker:
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = self._lib.rd_kafka_conf_new()
        # The handle that carries the cluster is no client; its warnings mean nothing to anybody.
        self._lib.rd_kafka_conf_set(conf, b"log_level", b"0", error, _ERROR_BYTES)
        self._handle = self._lib.rd_kafka_new(_PRODUCER, conf, error, _ERROR_BYTES)
        if not self._handle:
            raise EmbeddedBrokerError(error.value.decode())
        self._cluster = self._lib.rd_kafka_mock_cluster_new(self._handle, 1)
        if not self._cluster:
            raise EmbeddedBrokerError("the mock cluster did not start")
        # Members that join together must meet in one generation, or a follower's SyncGroup
        # comes after the leader's, which aiokafka takes for fatal.
        self._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 500)
        for name, partitions in self._topics:
            code = self._lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
            if code:
                raise EmbeddedBrokerError(f"topic {name} was refused, code {code}")
        self.bootstrap = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        return self

    def pause(self) -> None:
        """Refuse connections until `resume`; records are kept."""
        self._lib.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def resume(self) -> None:
        self._lib.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def refuse_writes(self, topic: str, partition: int, count: int) -> None:
        """Refuse the next `count` writes to a partition; their clients try again."""
        errors = [ctypes.c_int(NOT_ENOUGH_REPLICAS)] * count
        self._lib.rd_kafka_mock_partition_push_request_errors(
            self._cluster, topic.encode(), partition, _PRODUCE, count, *errors
        )

    def stop(self) -> None:
        if self._cluster:
            self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
            self._cluster = None
        if self._handle:
            self._lib.rd_kafka_destroy(self._handle)
            self._handle = None

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
