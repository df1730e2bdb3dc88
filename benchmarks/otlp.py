"""The cost of OTLP: python -m benchmarks.otlp [--bodies DIR] [--turns N] [--traces N] [--live SECONDS] [--profile]

Bodies as exporters send them, in both dialects: runs of agents with tools whose calls hold their whole history, in batches of 512 spans.
Baselines run on the same bodies, beside: `ExportTraceServiceRequest.FromString` alone, and every attribute read into a dict.

- split: a body split by its traces, as the receiver does it.
- fold: captures in, events of branches out (encoded), with all that the capture worker computes; no broker.
- `--live`: HTTP in to acknowledgements of a Kafka of its own, `braid gateway` and senders on this machine.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from agents.capture.capture_fold import CaptureFold
from agents.importers.otlp.request_split import COMPILED, TRACES, split_proto
from benchmarks.conversations import text_of
from benchmarks.live import environment, fresh_broker
from schemas.captures import Capture
from schemas.codec.body import encode
from schemas.events import AgentEvents
from streams.cluster.garbage_collector import tune_gc

BATCH = 512
"""Spans of a body: what exporters send by default."""

OUTPUT = 600
"""Characters of a tool's output."""


class Bodies(NamedTuple):
    """Export requests."""

    dialect: str
    bodies: list[bytes]
    spans: int

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(map(len, self.bodies))


# -- bodies ----------------------------------------------------------------------------------------------------------------


def made_bodies(dialect: str, traces: int, turns: int) -> Bodies:
    """Runs of agents, each a trace, of which many go on at a time."""
    dice = random.Random(29)
    spans: list[tuple[int, Any]] = []
    for number in range(traces):
        begun = number * 7_000_000
        spans += [(begun + at, span) for at, span in _run(dialect, dice, number, turns)]
    spans.sort(key=lambda each: each[0])
    bodies = []
    for start in range(0, len(spans), BATCH):
        request = ExportTraceServiceRequest()
        block = request.resource_spans.add()
        for key, value in {"service.name": "agent", "telemetry.sdk.language": "python"}.items():
            block.resource.attributes.add(key=key).value.string_value = value
        scope = block.scope_spans.add()
        scope.scope.name = "opentelemetry.instrumentation.openai"
        scope.spans.extend([span for _, span in spans[start : start + BATCH]])
        bodies.append(request.SerializeToString())
    return Bodies(dialect, bodies, len(spans))


def _run(dialect: str, dice: random.Random, number: int, turns: int) -> Iterator[tuple[int, Any]]:
    trace = number.to_bytes(8, "big") + bytes(7) + b"t"
    ids = count(1 + 1000 * number)  # other receivers keep one span of an id, whatever its trace
    root = next(ids)
    start = 1_794_000_000_000_000_000
    clock = 0
    history: list[dict[str, Any]] = [
        {"role": "system", "content": text_of(dice, 800)},
        {"role": "user", "content": text_of(dice, 300)},
    ]
    for turn in range(turns):
        call = {"id": f"call_{turn}", "name": "bash", "arguments": json.dumps({"command": text_of(dice, 60)})}
        last = turn == turns - 1
        said: dict[str, Any] = {"role": "assistant", "content": text_of(dice, 200)} | (
            {} if last else {"tool_calls": [call]}
        )
        chat = _genai(history, said, turn) if dialect == "gen_ai" else _inference(history, said, turn)
        yield clock, _span(trace, next(ids), root, "chat m", start + clock, 900_000_000, chat)
        clock += 1_000_000_000
        history.append(said)
        if not last:
            output = text_of(dice, OUTPUT)
            tool = _tool(dialect, call, output)
            yield clock, _span(trace, next(ids), root, "execute_tool bash", start + clock, 90_000_000, tool)
            history.append({"role": "tool", "tool_call_id": call["id"], "content": output})
            clock += 100_000_000
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "coder"}
    if dialect != "gen_ai":
        agent = {"openinference.span.kind": "AGENT", "agent.name": "coder"}
    named = {"braid.rollout_id": f"r{number // 4}", "braid.branch_index": number % 4}
    yield clock, _span(trace, root, None, "invoke_agent coder", start, clock, agent | named)


def _span(
    trace: bytes, number: int, parent: int | None, name: str, start: int, lasts: int, attributes: dict[str, Any]
) -> Any:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(
        trace_id=trace, span_id=number.to_bytes(8, "big"), name=name, start_time_unix_nano=start, end_time_unix_nano=start + lasts,
        parent_span_id=b"" if parent is None else parent.to_bytes(8, "big"), kind=3,
    )  # fmt: skip
    for key, value in attributes.items():
        held = span.attributes.add(key=key).value
        if isinstance(value, str):
            held.string_value = value
        elif isinstance(value, int):
            held.int_value = value
        elif isinstance(value, float):
            held.double_value = value
        else:
            for each in value:
                held.array_value.values.add().string_value = each
    return span


def _genai(history: Sequence[dict[str, Any]], said: dict[str, Any], turn: int) -> dict[str, Any]:
    def parts(message: dict[str, Any]) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        if message["role"] == "tool":
            found.append({"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]})
        else:
            found.append({"type": "text", "content": message["content"]})
        for call in message.get("tool_calls", ()):
            found += [{"type": "tool_call", **call, "arguments": json.loads(call["arguments"])}]
        return {"role": message["role"], "parts": found}

    reason = "tool_calls" if "tool_calls" in said else "stop"
    return {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-1", "gen_ai.response.id": f"resp-{turn}", "gen_ai.request.temperature": 0.5,
        "gen_ai.response.finish_reasons": [reason], "gen_ai.usage.input_tokens": 100 * turn, "gen_ai.usage.output_tokens": 20,
        "gen_ai.input.messages": json.dumps([parts(each) for each in history]),
        "gen_ai.output.messages": json.dumps([parts(said) | {"finish_reason": reason}]), "server.address": "api", "server.port": 443,
    }  # fmt: skip


def _inference(history: Sequence[dict[str, Any]], said: dict[str, Any], turn: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "openinference.span.kind": "LLM", "llm.model_name": "m", "llm.provider": "openai",
        "llm.invocation_parameters": json.dumps({"model": "m", "temperature": 0.5}),
        "llm.token_count.prompt": 100 * turn, "llm.token_count.completion": 20, "llm.token_count.total": 100 * turn + 20,
        "input.value": json.dumps({"messages": history}), "input.mime_type": "application/json",
        "output.value": json.dumps({"id": f"resp-{turn}", "choices": [{"index": 0, "message": said}]}),
        "output.mime_type": "application/json",
    }  # fmt: skip
    for prefix, messages in (("llm.input_messages", history), ("llm.output_messages", [said])):
        for number, message in enumerate(messages):
            head = f"{prefix}.{number}.message"
            found |= {f"{head}.role": message["role"], f"{head}.content": message["content"]}
            if "tool_call_id" in message:
                found[f"{head}.tool_call_id"] = message["tool_call_id"]
            for place, call in enumerate(message.get("tool_calls", ())):
                found[f"{head}.tool_calls.{place}.tool_call.id"] = call["id"]
                found[f"{head}.tool_calls.{place}.tool_call.function.name"] = call["name"]
                found[f"{head}.tool_calls.{place}.tool_call.function.arguments"] = call["arguments"]
    return found


def _tool(dialect: str, call: dict[str, Any], output: str) -> dict[str, Any]:
    if dialect == "gen_ai":
        return {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call["name"], "gen_ai.tool.call.id": call["id"],
            "gen_ai.tool.call.arguments": call["arguments"], "gen_ai.tool.call.result": output,
        }  # fmt: skip
    return {
        "openinference.span.kind": "TOOL", "tool.name": call["name"], "tool_call.id": call["id"], "input.value": call["arguments"],
        "output.value": output,
    }  # fmt: skip


# -- baselines and the fold ------------------------------------------------------------------------------------------------


def plain(value: AnyValue) -> Any:
    """An attribute as any reader of OTLP makes it."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    held = getattr(value, kind)
    if kind == "array_value":
        return [plain(each) for each in held.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in held.values}
    return held


def attributes_read(bodies: Sequence[bytes]) -> int:
    """Read every attribute of every span into a dict."""
    found = 0
    for body in bodies:
        for block in ExportTraceServiceRequest.FromString(body).resource_spans:
            found += bool({pair.key: plain(pair.value) for pair in block.resource.attributes})
            for scope in block.scope_spans:
                for span in scope.spans:
                    found += bool({pair.key: plain(pair.value) for pair in span.attributes})
    return found


def captures(bodies: Sequence[bytes]) -> list[Capture]:
    """The captures of bodies."""
    return [
        Capture(
            rollout_id=f"otel-{trace.hex()}", branch_index=0, capture_id=f"{number}-{trace.hex()}", kind="span", source="otlp",
            trace_id=trace.hex(), received_ms=1, body=part,
        )
        for number, body in enumerate(bodies)
        for trace, part in split_proto(body, TRACES).bodies.items()
    ]  # fmt: skip


def fold(told: Sequence[Capture]) -> tuple[int, int]:
    """Fold captures, and what they move, until everything has ended; returns events and bytes of slices."""
    events = size = 0
    waiting = list(told)
    while waiting:
        folds: dict[tuple[str, int], CaptureFold] = {}
        moved: list[Capture] = []
        for number, each in enumerate(waiting):
            key = (each.rollout_id, each.branch_index)
            if key not in folds:
                folds[key] = CaptureFold(*key)
            folds[key].take(each, number)
        for (name, index), one in folds.items():
            end = Capture(rollout_id=name, branch_index=index, capture_id="end", kind="end", received_ms=1, body=b"{}")
            for made in one.take(end, 1 << 40):
                size += len(encode(made))
                if isinstance(made, AgentEvents):
                    events += len(made.events)
                else:
                    moved.append(made)
        waiting = moved
    return events, size


def best(job: Callable[[], Any], rounds: int = 3) -> float:
    """The shortest of some runs, in seconds of the processor: other work on the machine counts for neither side."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        job()
        found.append(time.process_time() - began)
    return min(found)


def in_process(told: Bodies, *, profile: bool) -> None:
    """Print what splitting and folding take, beside their baselines."""
    spans, size = told.spans, told.size
    parsing = best(lambda: [ExportTraceServiceRequest.FromString(body) for body in told.bodies])
    reading = best(lambda: attributes_read(told.bodies))
    splitting = best(lambda: [split_proto(body, TRACES) for body in told.bodies])
    made = captures(told.bodies)
    folding = best(lambda: fold(made))
    events, _ = fold(made)
    print(
        f"{told.dialect}: {spans} spans, {size / 1e6:.1f} MB, {len(told.bodies)} bodies, {len(made)} captures, {events} events"
    )
    print(f"  FromString                  {parsing / spans * 1e6:8.2f} us a span  {size / parsing / 1e6:8.0f} MB/s")
    print(
        f"  split                       {splitting / spans * 1e6:8.2f} us a span  {parsing / splitting:8.1f} x FromString"
    )
    print(f"  every attribute into a dict {reading / spans * 1e6:8.2f} us a span")
    print(
        f"  spans to events             {folding / spans * 1e6:8.2f} us a span  {reading / folding:8.2f} x that (bar 1.0)"
    )
    if profile:
        watched = cProfile.Profile()
        watched.runcall(fold, made)
        pstats.Stats(watched).sort_stats("tottime").print_stats(28)


# -- live ------------------------------------------------------------------------------------------------------------------


async def _send(url: str, bodies: Sequence[bytes], until: float, senders: int) -> tuple[int, int]:
    """Send bodies again and again; returns how many were acknowledged, and how many refused."""
    taken = refused = 0
    numbers = count()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def sender() -> None:
            nonlocal taken, refused
            while time.monotonic() < until:
                body = bodies[next(numbers) % len(bodies)]
                headers = {"Content-Type": "application/x-protobuf"}
                async with client.post(f"{url}/v1/traces", data=BytesIO(body), headers=headers) as answer:
                    await answer.read()
                    taken += answer.status == 200
                    refused += answer.status != 200

        await asyncio.gather(*(sender() for _ in range(senders)))
    return taken, refused


def live(told: Sequence[Bodies], seconds: float, senders: int) -> None:
    """Print HTTP in to acknowledgement beside FromString, on a broker of its own."""
    with TemporaryDirectory() as folder, fresh_broker(Path(folder)) as settings:
        env = environment(settings)
        command = [sys.executable, "-m", "streams", "gateway", "--port", "0", "--json", "--log-level", "error"]
        gateway = subprocess.Popen(command, env=os.environ | env, stdout=subprocess.PIPE)
        try:
            assert gateway.stdout is not None
            url = json.loads(gateway.stdout.readline())["url"]
            for each in told:
                asyncio.run(_send(url, each.bodies, time.monotonic() + 2, senders))  # warm
                began = time.monotonic()
                taken, refused = asyncio.run(_send(url, each.bodies, began + seconds, senders))
                spent = time.monotonic() - began
                parsing = best(lambda each=each: [ExportTraceServiceRequest.FromString(body) for body in each.bodies])  # type: ignore[misc]
                rate, alone = taken / spent, len(each.bodies) / parsing
                mean = each.size / len(each.bodies)
                print(
                    f"{each.dialect}, {mean / 1e3:.0f} KB a body: {rate:.0f} bodies/s, {rate * each.spans / len(each.bodies):.0f} spans/s, "
                    f"{rate * mean / 1e6:.0f} MB/s acknowledged ({refused} refused); FromString alone {alone:.0f} bodies/s: "
                    f"{100 * rate / alone:.1f} % (bar 40 %)",
                    flush=True,
                )
            status = Path(f"/proc/{gateway.pid}/status").read_text().splitlines()
            peak = next(line for line in status if line.startswith("VmHWM"))
            print(f"gateway's most memory: {int(peak.split()[1]) / 1024:.0f} MB")
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(30)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--traces", type=int, default=60)
    parser.add_argument("--live", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    tune_gc()
    print(f"split and read by {'C' if COMPILED else 'the library'}")
    told = [made_bodies(dialect, given.traces, given.turns) for dialect in ("gen_ai", "openinference")]
    for each in told:
        in_process(each, profile=given.profile)
    if given.live:
        live(told, given.live, given.senders)


if __name__ == "__main__":
    main()
