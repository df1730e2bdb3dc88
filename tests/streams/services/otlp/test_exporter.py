"""The SDK's own exporter, batching and flushing as it does in an agent."""

import json
import uuid
from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from streams.cluster.config import Settings
from tests.agents.capture.span_captures import events_in
from tests.agents.capture.test_span_fold import chat
from tests.streams.services.otlp.test_receiver import slices
from tests.streams.services.proxy.proxying import folding, gateway_of

pytestmark = pytest.mark.kafka


@pytest.fixture
def house(settings: Settings) -> Settings:
    return settings.model_copy(update={"capture": settings.capture.model_copy(update={"trace_idle_s": 4.0})})


@pytest.fixture
def url(house: Settings) -> Iterator[str]:
    with gateway_of(house) as url, folding(house):
        yield url


@pytest.mark.parametrize("packed", [False, True])
def test_an_agent_with_the_sdk_becomes_an_exact_branch(url: str, house: Settings, packed: bool) -> None:
    rollout = f"sdk-{uuid.uuid4().hex[:8]}"
    provider = TracerProvider(resource=Resource.create({"braid.rollout_id": rollout, "braid.branch_index": 1}))
    exporter = OTLPSpanExporter(
        endpoint=f"{url}/v1/traces", compression=Compression.Gzip if packed else Compression.NoCompression
    )
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=2))
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for number in range(5):
            with tracer.start_as_current_span("chat m", attributes=chat(f"q{number}", f"a{number}")):
                pass
    assert provider.force_flush()
    provider.shutdown()
    ((place, found),) = slices(house, rollout).items()
    assert place == (rollout, 1, 0)
    said = [each["data"]["content"] for each in events_in(found) if each["event"] == "message"]
    assert said == [word for number in range(5) for word in (f"q{number}", f"a{number}")]
    assert found[-1].status == "answered", json.dumps(found[-1].error)
