"""Writes the AsyncAPI 3.0 document of the bus: `python -m assay.asyncapi`.

Payloads are references to the schemas beside it, so that nothing is said twice.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from assay.contracts import schema_root
from assay.events import EVENTS, GenerationAnswered, InternalEvent
from assay.topics import Catalogue, Topic, catalogue

FILE = "asyncapi.json"
_BINDING = "0.5.0"
_DRAFT = "application/schema+json;version=draft-2020-12"
_KEYS = {
    "wallet": "Wallet address in lower case; the request id where there is no wallet.",
    "request": "Request id.",
}
_TEXT = {"type": "string"}
_DEAD_LETTER = "dead-letter"
_POSTPONED = "postponed"


def asyncapi(flow: Catalogue) -> dict[str, Any]:
    """The document: channels and operations from the catalogue, messages from the events."""
    channels = {topic.name: _channel(topic, topic.event) for topic in flow}
    channels |= {topic.name: _channel(topic, _DEAD_LETTER) for topic in flow.dead_letters()}
    channels |= {topic.name: _channel(topic, _POSTPONED) for topic in flow.retries()}
    operations = {
        name: operation
        for topic in flow.on_broker()
        for name, operation in _operations(topic, *channels[topic.name]["messages"])
    }
    messages = {event: _message(event) for event in EVENTS}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Assay",
            "version": version("assay"),
            "description": "Wallet events in, checked and signed reputation scores out.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {**messages, _DEAD_LETTER: _dead_letter(), _POSTPONED: _postponed()}
        },
    }


def _channel(topic: Topic, message: str) -> dict[str, Any]:
    return {
        "address": topic.name,
        "description": topic.summary,
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "partitions": topic.partitions,
                "replicas": topic.replication,
                "topicConfiguration": {
                    "cleanup.policy": ["delete"],
                    "retention.ms": topic.retention_ms,
                    "max.message.bytes": topic.record_bytes,
                },
                "bindingVersion": _BINDING,
            }
        },
        "x-key": _KEYS[topic.key],
    }


def _operations(topic: Topic, message: str) -> list[tuple[str, dict[str, Any]]]:
    """One operation per service and direction, seen from the service."""
    channel = f"#/channels/{topic.name}"
    found = []
    for verb, action, services in (
        ("writes", "send", topic.producers),
        ("handles", "receive", topic.consumers),
        ("keeps", "receive", topic.sinks),
    ):
        for service in services:
            operation = {
                "action": action,
                "channel": {"$ref": channel},
                "messages": [{"$ref": f"{channel}/messages/{message}"}],
            }
            found.append((f"{service}.{verb}.{topic.name}", operation))
    return found


def _message(event: str) -> dict[str, Any]:
    doc = (EVENTS[event].__doc__ or "").strip().split("\n\n")[0]
    return {
        "name": event,
        "summary": " ".join(doc.split()),
        "contentType": "application/json",
        "headers": _headers(event),
        "payload": {
            "schemaFormat": _DRAFT,
            "schema": {"$ref": f"./events/{event}.schema.json"},
        },
        "x-examples": f"./examples/{event}/valid/",
    }


def _headers(event: str) -> dict[str, Any]:
    """CloudEvents 1.0 in binary mode; an internal event's also mirror its `meta`."""
    properties: dict[str, Any] = {
        "content-type": {"const": "application/json"},
        "ce_specversion": {"const": "1.0"},
        "ce_id": _TEXT,
        "ce_source": _TEXT,
        "ce_type": {"const": event},
    }
    required = sorted(properties) if issubclass(EVENTS[event], InternalEvent) else []
    if required:
        mirrored = ("ce_requestid", "ce_tenantid", "ce_attempt")
        properties |= dict.fromkeys((*mirrored, "ce_subject", "ce_causationid"), _TEXT)
        required += mirrored
    if event == GenerationAnswered.type:
        properties["assay_duration_ms"] = _TEXT
    properties["traceparent"] = _TEXT
    return {"type": "object", "properties": properties, "required": required}


def _dead_letter() -> dict[str, Any]:
    reasons = ["topic", "partition", "offset", "connector.name", "stage"]
    reasons += ["exception.class.name", "exception.message"]
    connect = dict.fromkeys((f"__connect.errors.{reason}" for reason in reasons), _TEXT)
    ours = ("assay.error.code", "assay.error.pointer", "assay.error.attempts", "assay.request.id")
    return {
        "name": _DEAD_LETTER,
        "summary": "A record as it came, with its own headers and the reason in these.",
        "headers": {
            "type": "object",
            "properties": connect | dict.fromkeys(ours, _TEXT),
            "required": [*connect, "assay.error.code"],
        },
        "payload": {"description": "Any bytes; the record's value as it came."},
    }


def _postponed() -> dict[str, Any]:
    names = ("topic", "partition", "offset", "timestamp", "attempt", "not-before", "code")
    ours = dict.fromkeys((f"assay.retry.{name}" for name in (*names, "message")), _TEXT)
    return {
        "name": _POSTPONED,
        "summary": "A record as it came, with its own headers and behind them when to try again.",
        "headers": {"type": "object", "properties": ours, "required": list(ours)},
        "payload": {"description": "Any bytes; the record's value as it came."},
    }


def document_text(flow: Catalogue) -> str:
    """The file's text."""
    return json.dumps(asyncapi(flow), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (schema_root() / FILE).write_text(document_text(catalogue()), encoding="utf-8")
    print(FILE)
