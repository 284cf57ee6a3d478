"""The catalogue's topics on a real broker."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient

from assay.topics import catalogue
from assay_runtime.topic_admin import TopicReport, TopicSpec, ensure_topics


def specs(partitions: int | None = None, replication: int | None = None) -> list[TopicSpec]:
    """Every topic, dead-letter topic and retry topic; the catalogue's own counts where none are
    given."""
    return [
        TopicSpec(
            topic.name,
            partitions or topic.partitions,
            replication or topic.replication,
            topic.broker_config(),
        )
        for topic in catalogue().on_broker()
    ]


async def create_missing(
    bootstrap: str, partitions: int | None = None, replication: int | None = None
) -> TopicReport:
    """Create what a broker lacks and leave what it has, taking over its partition count.

    For brokers somebody else looks after: their settings are theirs, the count must be one.
    Replication is 3 unless given, or what the brokers are.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        wanted = specs(partitions)
        present = set(await admin.list_topics())
        described = await admin.describe_topics(
            [spec.name for spec in wanted if spec.name in present]
        )
        brokers = len((await admin.describe_cluster())["brokers"])
    finally:
        await admin.close()
    counts = {len(topic["partitions"]) for topic in described}
    if len(counts) == 1:
        partitions = counts.pop()
    wanted = specs(partitions, replication or min(3, brokers))
    missing = [spec for spec in wanted if spec.name not in present]
    return await ensure_topics(bootstrap, missing)
