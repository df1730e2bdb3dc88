"""The topics as an AsyncAPI 3 document: channels, messages with their Avro and headers, and the settings of the broker."""

from importlib.metadata import version
from typing import Any, Final

from schemas import versions
from streams.log.headers import CONTENT_TYPE
from streams.log.topics import TOPICS, Topic, topic_config
from streams.views.reference.field_table import about

AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
BINDING: Final = "0.5.0"
"""The version of AsyncAPI's Kafka bindings."""

_INFO: Final = """\
Live, forked agent runs become ranked, evidenced training data, as a replayable log on Kafka. Every record is keyed by its rollout_id
(UTF-8; partitioner murmur2), and all topics have the same number of partitions. Values are Avro: with a schema registry in the
Confluent wire format, without one in single-object encoding. Topic names carry the configured prefix."""

_HEADERS: Final = {
    "type": "object",
    "required": ["ce_specversion", "ce_id", "ce_type", "ce_source", "content-type"],
    "properties": {
        "ce_specversion": {"const": "1.0"},
        "ce_id": {"type": "string", "description": "A function of the content: a repetition has the same."},
        "ce_type": {"type": "string"},
        "ce_source": {"type": "string", "description": "The part of the product that wrote the record."},
        "ce_time": {"type": "string", "format": "date-time", "description": "The record's own time, where it has one."},
        "content-type": {"const": CONTENT_TYPE[1].decode()},
        "traceparent": {"type": "string", "description": "The producer's W3C trace context."},
        "braid_redacted": {
            "type": "string",
            "description": "The version of the rules by which the record was redacted.",
        },
    },
}

_KEY: Final = {"type": "string", "description": "The rollout_id."}


def asyncapi() -> dict[str, Any]:
    """The document."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Braidstream", "version": version("braidstream"), "description": " ".join(_INFO.split()),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE[1].decode(),
        "servers": {
            "kafka": {
                "host": "{bootstrap}", "protocol": "kafka",
                "variables": {"bootstrap": {"default": "127.0.0.1:9092", "description": "The setting `kafka`."}},
            }
        },
        "channels": {topic.name: _channel(topic) for topic in TOPICS},
        "operations": {f"{_action(topic)}.{topic.name}": _operation(topic) for topic in TOPICS},
        "components": {"messages": {_name(topic): _message(topic) for topic in TOPICS}},
    }  # fmt: skip


def _name(topic: Topic) -> str:
    return "DeadLetter" if topic.record is None else topic.record.__name__


def _action(topic: Topic) -> str:
    """Producers write facts and raw material; services of the product write the rest."""
    return "receive" if topic.kind in ("fact", "raw") and "worker" not in topic.written_by else "send"


def _channel(topic: Topic) -> dict[str, Any]:
    settings = topic_config(topic)
    return {
        "address": topic.name,
        "description": f"Kind: {topic.kind}. Written by: {topic.written_by}.",
        "messages": {_name(topic): {"$ref": f"#/components/messages/{_name(topic)}"}},
        "bindings": {
            "kafka": {
                "topicConfiguration": {
                    "cleanup.policy": [settings["cleanup.policy"]],
                    "retention.ms": int(settings["retention.ms"]),
                    "max.message.bytes": int(settings["max.message.bytes"]),
                },
                "bindingVersion": BINDING,
            }
        },
    }


def _operation(topic: Topic) -> dict[str, Any]:
    place = topic.name.replace("~", "~0").replace("/", "~1")
    return {
        "action": _action(topic),
        "channel": {"$ref": f"#/channels/{place}"},
        "messages": [{"$ref": f"#/channels/{place}/messages/{_name(topic)}"}],
    }


def _message(topic: Topic) -> dict[str, Any]:
    bindings = {"kafka": {"key": _KEY, "bindingVersion": BINDING}}
    if topic.record is None:
        return {
            "name": _name(topic), "bindings": bindings, "contentType": "application/octet-stream",
            "summary": "The original key, value and headers, and why the record did not count, in headers `__braid.errors.*`.",
        }  # fmt: skip
    latest = versions.latest(topic.record)
    return {
        "name": latest.name,
        "title": f"{latest.name} v{latest.number}",
        "summary": about(topic.record),
        "headers": _HEADERS,
        "payload": {"schemaFormat": AVRO, "schema": latest.schema},
        "bindings": bindings,
    }
