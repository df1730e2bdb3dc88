"""The sample: scripted rollouts as the NDJSON lines that `braid ingest` and `braid run` read.

`sample_lines()` gives them in the order in which a busy system would have written them: rollouts overlap, the branches
of one progress side by side, verdicts follow the end of their branch, and votes come last. There is no clock and no
chance in it: ids, times and token counts are functions of the scripts, so every call gives the same bytes.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import JsonValue
from pydantic.alias_generators import to_snake

from tests.sample.rollout_script import (
    Branch,
    Call,
    PairVotes,
    RolloutScript,
    Spelling,
    Turn,
    scripts,
    tool_definitions,
)

Line = dict[str, object]

BASE_MS = 1_768_467_600_000
"""2026-01-15T09:00:00Z, the sample's first moment."""

TEMPERATURES = (0.2, 0.5, 0.8, 1.0)
"""Of branches 0 to 3: what makes a fork's branches differ."""

# Times of a plausible agent, in milliseconds.
BRANCH_STAGGER_MS = 420
RETRY_AFTER_MS = 5_000
WORD_MS = 30
TOKEN_MS = 15
ERROR_MS = 2_000
RESEND_AFTER_MS = 1_500
VERDICT_MS = 500
VOTE_MS = 900

# Prices of a plausible model, in dollars for one token.
INPUT_USD, CACHED_USD, OUTPUT_USD = 3e-6, 3e-7, 15e-6


class Timed(NamedTuple):
    """A line and the moment it was written, which orders the sample and is not part of the line."""

    at_ms: int
    line: Line


class Result(NamedTuple):
    """A call of a batch that returned, and when."""

    done_ms: int
    took_ms: int
    call_id: str
    call: Call


def sample_lines() -> Iterator[Line]:
    """All lines of the sample, in the order they were written."""
    timed = [entry for script in scripts() for entry in rollout_lines(script)]
    timed.sort(key=lambda entry: entry.at_ms)  # stable: lines of one moment keep the order of the scripts
    for entry in timed:
        yield entry.line


def write_sample(path: Path) -> int:
    """Write the sample as NDJSON and return the number of its lines."""
    lines = [orjson.dumps(line) + b"\n" for line in sample_lines()]
    path.write_bytes(b"".join(lines))
    return len(lines)


def rollout_lines(script: RolloutScript) -> Iterator[Timed]:
    """The lines of one rollout, each with its moment."""
    opened_ms = BASE_MS + 1000 * script.starts_s
    tools = [tool_definitions()[name] for name in script.tools]
    yield Timed(
        opened_ms,
        {
            "type": "rollout",
            "rollout_id": script.id,
            "task": script.task,
            "branches": len({branch.index for branch in script.branch}),
            "required": list(script.required),
            "deadline_ms": script.deadline_ms,
            "system_prompt": script.system_prompt or None,
            "tools": tools,
            "labels": script.labels,
            "repo_commit": hashlib.sha256(script.id.encode()).hexdigest()[:40],
            "tool_manifest_digest": hashlib.sha256(orjson.dumps(tools)).hexdigest(),
        },
    )
    last_ms = opened_ms
    free_ms: dict[int, int] = {}  # when an earlier attempt at the branch was over
    for branch in script.branch:
        start_ms = free_ms.get(branch.index, opened_ms + BRANCH_STAGGER_MS * (1 + branch.index))
        lines = list(branch_lines(script, branch, start_ms))
        yield from lines
        over_ms = max(entry.at_ms for entry in lines)
        free_ms[branch.index] = over_ms + RETRY_AFTER_MS
        last_ms = max(last_ms, over_ms)
    if any(_still_open(branch) for branch in script.branch):
        last_ms = max(last_ms, opened_ms + script.deadline_ms)
    for number, line in enumerate(line for votes in script.votes for line in vote_lines(script, votes)):
        yield Timed(last_ms + VOTE_MS * (number + 3), line)


def branch_lines(script: RolloutScript, branch: Branch, start_ms: int) -> Iterator[Timed]:
    """One attempt at one branch: its events, its end line if any, its verdicts."""
    where: Line = {"type": "event", "rollout_id": script.id, "branch_index": branch.index}
    end_ms = start_ms
    for seq, event in enumerate(BranchEvents(script, branch, start_ms).all()):
        end_ms = event.at_ms
        number: Line = {"attempt": branch.attempt, "seq": seq} if script.numbered else {}
        entry = Timed(end_ms, {**where, **number, "event": _spell(event.line, script.spelling)})
        yield entry
        if seq in branch.sent_twice:
            yield entry._replace(at_ms=end_ms + RESEND_AFTER_MS)

    where["attempt"] = branch.attempt
    if branch.ends:
        yield Timed(end_ms, {**where, "type": "end", "status": branch.ends})
    at_ms = end_ms
    for build in branch.build:
        fields = build.model_dump(mode="json", exclude_none=True)
        if build.tests:
            fields["tests"]["total"] = sum(fields["tests"].values())
        at_ms += build.wall_ms or VERDICT_MS
        yield Timed(at_ms, {**where, "type": "build", **fields, "produced_by": "demo-build-verifier"})
    for kind, verdicts in (("visual", branch.visual), ("check", branch.check)):
        for verdict in verdicts:
            at_ms += VERDICT_MS
            fields = verdict.model_dump(mode="json", exclude_none=True, exclude_unset=True)
            yield Timed(at_ms, {**where, "type": kind, **fields, "produced_by": f"demo-{kind}-verifier"})


class BranchEvents:
    """The agent events of one attempt at one branch, in camel case, with a running clock and token account."""

    def __init__(self, script: RolloutScript, branch: Branch, start_ms: int) -> None:
        self.script = script
        self.branch = branch
        self.now_ms = start_ms
        self.name = f"{script.id}/b{branch.index}/a{branch.attempt}"
        self.context_chars = len(script.system_prompt) + len(script.task) + 400 * len(script.tools)
        self.usage = {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 0}

    def all(self) -> Iterator[Timed]:
        """From run_start to whatever came last."""
        config: JsonValue = {
            "model": self.script.model,
            "tools": list(self.script.tools),
            "maxSteps": self.script.max_steps,
            "temperature": TEMPERATURES[self.branch.index],
        }
        yield self._event("text", "run_start", {"task": self.script.task, "agentConfig": config})
        for step, turn in enumerate((*self.script.shared, *self.branch.turn), start=1):
            yield from self._turn(step, turn)

    def _turn(self, step: int, turn: Turn) -> Iterator[Timed]:
        yield self._event("thinking", "step_start", {"step": step}, after_ms=40)
        if turn.plan:
            yield self._event("thinking", "planning", {"step": step, "plan": turn.plan, "facts": turn.facts})
        for delta in _sentences(turn.say):
            data: dict[str, JsonValue] = {"delta": delta, "step": step}
            yield self._event("thinking", "thinking_delta", data, after_ms=WORD_MS * len(delta.split()))
        if turn.call or turn.error is None:
            yield self._model_done(step, turn)
        if turn.call:
            yield from self._calls(step, turn.call)
        if turn.error is not None:
            yield self._event("text", "error", {"error": turn.error, "step": step}, after_ms=ERROR_MS)
        if turn.answer is not None:
            yield self._event("text", "final_answer", {"answer": turn.answer}, after_ms=20)

    def _model_done(self, step: int, turn: Turn) -> Timed:
        written = turn.say + turn.plan + (turn.answer or "") + "".join(_json(call.args) for call in turn.call)
        tokens = 12 + len(written) // 4
        self.usage["cacheReadTokens"] += 0 if step == 1 else self.context_chars // 8
        self.usage["inputTokens"] += self.context_chars // 4
        self.usage["outputTokens"] += tokens
        self.context_chars += len(written)
        usd = sum(
            count * price for count, price in zip(self.usage.values(), (INPUT_USD, OUTPUT_USD, CACHED_USD), strict=True)
        )
        data: dict[str, JsonValue] = {
            "modelId": self.script.model,
            "step": step,
            "finishReason": "tool_calls" if turn.call else "stop",
            **self.usage,
            "estimatedUsd": round(usd, 6),
        }
        return self._event("model", "model_done", data, after_ms=TOKEN_MS * tokens)

    def _calls(self, step: int, calls: tuple[Call, ...]) -> Iterator[Timed]:
        """A batch: all calls first, then the results in the order in which the tools finished."""
        batch: dict[str, JsonValue] = {
            "batchId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.name}/{step}")),
            "batchSize": len(calls),
            "stepIndex": step,
        }
        results: list[Result] = []
        for position, call in enumerate(calls):
            call_id = "call_" + hashlib.sha256(f"{self.name}/{step}/{position}".encode()).hexdigest()[:8]
            yield from self._before(step, call, call_id)
            called: dict[str, JsonValue] = {"toolName": call.tool, "args": call.args, "callId": call_id}
            yield self._event("tool", "tool_call", {**called, **batch}, after_ms=1)
            took_ms = call.ms if call.ms is not None else 60 + min(len(_json(call.result())), 20_000) // 4
            if call.returned:
                results.append(Result(self.now_ms + took_ms, took_ms, call_id, call))
        for done_ms, took_ms, call_id, call in sorted(results, key=lambda result: result.done_ms):
            self.now_ms = max(self.now_ms, done_ms)
            self.context_chars += min(len(_json(call.result())), 2_000)
            result: dict[str, JsonValue] = {"callId": call_id, "toolName": call.tool, "output": call.result()}
            if call.error:
                result["error"] = call.error.model_dump()
            yield self._event("tool", "tool_result", {**result, **batch})
            if self.script.actions:
                completed: dict[str, JsonValue] = {"actionId": call_id, "durationMs": took_ms}
                completed |= {"success": False, "error": call.error.message} if call.error else {"success": True}
                yield self._event("action", "action_completed", completed)

    def _before(self, step: int, call: Call, call_id: str) -> Iterator[Timed]:
        if not self.script.actions:
            return
        proposed: dict[str, JsonValue] = {"actionId": call_id, "type": call.tool}
        if "path" in call.args:
            proposed["path"] = call.args["path"]
        yield self._event("action", "action_proposed", proposed)
        status: dict[str, JsonValue] = {"phase": "tool_executing", "toolName": call.tool, "callId": call_id}
        yield self._event("status", "status", {**status, "step": step})

    def _event(self, channel: str, kind: str, data: dict[str, JsonValue], after_ms: int = 0) -> Timed:
        self.now_ms += after_ms
        return Timed(
            self.now_ms,
            {
                "traceId": f"agent-{uuid.uuid5(uuid.NAMESPACE_URL, self.name)}",
                "parentTraceId": None,
                "channel": channel,
                "event": kind,
                "data": data,
                "timestampMs": self.now_ms,
            },
        )


def vote_lines(script: RolloutScript, votes: PairVotes) -> Iterator[Line]:
    """The judge's answers about one pair, in both orders."""
    for order, letters, answers in (("ab", "AB", votes.ab), ("ba", "BA", votes.ba)):
        for sample, answer in enumerate(answers):
            line: Line = {"type": "vote", "rollout_id": script.id, "a": votes.pair[0], "b": votes.pair[1]}
            line |= {"order": order, "sample": sample, "judge": script.judge}
            if answer in ("a", "b", "tie"):
                reasoning = votes.why[answer].format(a=letters[0], b=letters[1])
                yield {**line, "preferred": answer, "reasoning": reasoning}
            else:
                yield {**line, "preferred": None, "cause": answer}


def _still_open(branch: Branch) -> bool:
    """Whether the rollout has to wait for its deadline because of this branch."""
    last_build = branch.build[-1].status if branch.build else None
    last_visual = branch.visual[-1].verdict if branch.visual else None
    return not branch.ended or last_build == "running" or last_visual == "pending"


def _spell(event: Line, spelling: Spelling) -> Line:
    """The event with its own keys respelled; what a tool was given or returned stays as it is."""
    if spelling is Spelling.CAMEL:
        return event
    data = event["data"]
    assert isinstance(data, dict)
    data = {to_snake(key): value for key, value in data.items()}
    if "agent_config" in data:
        data["agent_config"] = {to_snake(key): value for key, value in data["agent_config"].items()}
    if spelling is Spelling.SNAKE_NAME and "tool_name" in data:
        data = {"name": data.pop("tool_name"), **data}
    return {to_snake(key): value for key, value in event.items()} | {"data": data}


def _sentences(text: str) -> list[str]:
    """The text in the pieces it was streamed in; together they are the text again."""
    return re.findall(r".+?(?:[.!?]\s+|\Z)", text, flags=re.DOTALL)


def _json(value: JsonValue) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
