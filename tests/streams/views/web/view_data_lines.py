"""Rollouts for the pages: one of six branches with a pair that votes cannot tell apart, a hostile one, and one full of secrets."""

from collections.abc import Iterator
from hashlib import sha256
from json import dumps
from typing import Any
from zlib import compress, crc32

from agents.workspace.snapshot_adapter import PNG
from tests.agents.redaction.secrets_corpus import FORMATS, IN_CONTEXT

Line = dict[str, Any]

AT = 1_768_467_600_000


def picture() -> bytes:
    """A screenshot: a PNG of 1280 by 800 points, all of them blue."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + kind + body + crc32(kind + body).to_bytes(4, "big")

    size = (1280).to_bytes(4, "big") + (800).to_bytes(4, "big")
    rows = (b"\0" + b"\x2f\x5f\xa8" * 1280) * 800
    return PNG + chunk(b"IHDR", size + b"\x08\x02\0\0\0") + chunk(b"IDAT", compress(rows, 9)) + chunk(b"IEND", b"")


SHOT = sha256(picture()).hexdigest()

HOSTILE = (
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)><img src=x onerror=alert(2)>',
    "</pre></details></main><script>alert(3)</script>",
    "javascript:alert(4)",
    "\x1b[31mred\x1b[0m \u202eright to left\u202c \u2066isolated\u2069",
    "{{7*7}} ${7*7} <%= 7*7 %> &lt;b&gt; &#x3c;b&#x3e;",
    "x" * 5000,
)
"""Hostile text for any field."""

HOSTILE_ID = "<b>bad</b>/../\"q\"?a=b&c#d %2F 'e'"


def event(rollout: str, branch: int, seq: int, channel: str, kind: str, **data: Any) -> Line:
    """An event line."""
    body = {"channel": channel, "event": kind, "data": data, "timestamp_ms": AT + seq * 1000}
    return {"type": "event", "rollout_id": rollout, "branch_index": branch, "seq": seq, "event": body}


def six_lines() -> Iterator[Line]:
    """Six branches: 0 and 1 fail, 2 and 5 pass alike, 3 is told exactly and passes, 4 is unknown. Pages of 2 and 5 were looked at."""
    name = "six"
    yield {
        "type": "rollout",
        "rollout_id": name,
        "task": "Say how many moons Mars has.",
        "branches": 6,
        "required": ["build"],
    }
    for branch in (0, 1, 2, 4, 5):
        yield event(name, branch, 0, "text", "run_start", task="Say how many moons Mars has.")
        yield event(
            name,
            branch,
            1,
            "tool",
            "tool_call",
            toolName="search",
            args={"query": "moons of Mars"},
            callId="c1",
            stepIndex=0,
        )
        yield event(name, branch, 2, "tool", "tool_result", callId="c1", output="Phobos and Deimos")
        yield event(name, branch, 3, "text", "final_answer", answer=f"Mars has two moons ({branch}).")
    yield from _exact(name, 3)
    for branch, passed in ((0, False), (1, False), (2, True), (3, True), (5, True)):
        yield {
            "type": "build",
            "rollout_id": name,
            "branch_index": branch,
            "status": "success" if passed else "failure",
            "exit_code": 0 if passed else 1,
        }
    for branch, shot in ((2, SHOT), (5, "0" * 64)):
        yield {
            "type": "visual",
            "rollout_id": name,
            "branch_index": branch,
            "verdict": "pass",
            "screenshot_digest": shot,
        }
    for sample in range(2):
        for order in ("ab", "ba"):
            # 2 and 5: the side shown first wins. 3 beats 5, whatever the order.
            yield _vote(name, 2, 5, order, sample, "a" if order == "ab" else "b")
            yield _vote(name, 3, 5, order, sample, "a")


def _vote(name: str, a: int, b: int, order: str, sample: int, preferred: str) -> Line:
    return {
        "type": "vote", "rollout_id": name, "a": a, "b": b, "order": order, "sample": sample, "preferred": preferred, "judge": "m",
        "reasoning": "It reads better.",
    }  # fmt: skip


def _exact(name: str, branch: int) -> Iterator[Line]:
    """A conversation of three requests, the last one after its context was rewritten."""
    said = (
        ("message", {"id": "s", "role": "system", "content": "Be brief."}),
        ("message", {"id": "u", "role": "user", "content": "Say how many moons Mars has."}),
        ("message", {"id": "a1", "role": "assistant", "content": "I search.", "reasoning": "Two, I think.",
                     "tool_calls": [{"id": "t1", "name": "search", "arguments": '{"query": "moons"}'}]}),
        ("model_call", {"call_id": "m1", "context": {"after": None, "keep": 0, "add": ["s", "u"]}, "response": "a1", "model": "mm",
                        "usage": {"input": 20, "output": 9}}),
        ("message", {"id": "r1", "role": "tool", "tool_call_id": "t1", "name": "search", "content": "Phobos and Deimos"}),
        ("message", {"id": "a2", "role": "assistant", "content": "I look again.",
                     "tool_calls": [{"id": "t2", "name": "search", "arguments": '{"query": "Deimos"}'}]}),
        ("model_call", {"call_id": "m2", "context": {"after": "m1", "keep": 3, "add": ["r1"]}, "response": "a2", "model": "mm"}),
        ("message", {"id": "r2", "role": "tool", "tool_call_id": "t2", "name": "search", "content": "the smaller one"}),
        ("message", {"id": "n", "role": "user", "content": "Summary so far: two moons were found."}),
        ("message", {"id": "a3", "role": "assistant", "content": "Mars has two moons."}),
        ("model_call", {"call_id": "m3", "context": {"after": "m2", "keep": 1, "add": ["n"]}, "response": "a3", "model": "mm"}),
    )  # fmt: skip
    for seq, (kind, data) in enumerate(said):
        yield event(name, branch, seq, "conversation", kind, **data)
    yield {"type": "end", "rollout_id": name, "branch_index": branch, "status": "answered"}


def hostile_lines() -> Iterator[Line]:
    """A rollout whose every field holds hostile text."""
    everything = " ".join(HOSTILE)
    yield {
        "type": "rollout", "rollout_id": HOSTILE_ID, "task": everything, "branches": 3, "required": ["build", "<i>lint</i>"],
        "labels": {"<u>k</u>": HOSTILE[1]}, "system_prompt": HOSTILE[2],
    }  # fmt: skip
    for branch in range(2):
        yield event(HOSTILE_ID, branch, 0, HOSTILE[0], "run_start", task=everything, agentConfig={"model": HOSTILE[0]})
        yield event(HOSTILE_ID, branch, 1, "thinking", "thinking_delta", delta=everything, step=0)
        yield event(
            HOSTILE_ID,
            branch,
            2,
            "tool",
            "tool_call",
            toolName=HOSTILE[1],
            args={HOSTILE[2]: everything, "path": HOSTILE[0]},
            callId=HOSTILE[0],
            stepIndex=0,
        )
        yield event(
            HOSTILE_ID, branch, 3, "tool", "tool_result", callId=HOSTILE[0], output=everything + "\n" + "A" * 900_000
        )
        yield event(
            HOSTILE_ID,
            branch,
            4,
            "tool",
            "tool_call",
            toolName="write_file",
            args={"path": HOSTILE[1]},
            callId="w",
            stepIndex=1,
        )
        yield event(
            HOSTILE_ID, branch, 5, "tool", "tool_result", callId="w", error={"code": HOSTILE[0], "message": everything}
        )
        yield event(HOSTILE_ID, branch, 6, "text", HOSTILE[0], text=everything)
        yield event(HOSTILE_ID, branch, 7, "text", "final_answer", answer=everything + str(branch))
        tail = {"text": everything, "digest": "d"}
        yield {
            "type": "build",
            "rollout_id": HOSTILE_ID,
            "branch_index": branch,
            "status": "success",
            "exit_code": 0,
            "stderr": tail,
            "produced_by": HOSTILE[0],
        }
        yield {
            "type": "check",
            "rollout_id": HOSTILE_ID,
            "branch_index": branch,
            "name": "<i>lint</i>",
            "status": "pass",
            "hint": everything,
        }
    yield _hack_verdict(HOSTILE_ID, 1, everything)
    yield from _hostile_conversation(everything)
    yield event(HOSTILE_ID, 1, 6, "text", "said otherwise", text=everything)  # a conflict: a dead letter
    yield {
        "type": "visual", "rollout_id": HOSTILE_ID, "branch_index": 0, "verdict": "fail", "reason": everything,
        "uncaught_errors": [*HOSTILE], "console_errors": [everything], "produced_by": HOSTILE[1], "screenshot_digest": HOSTILE[2],
        "dom_probes": [{"name": HOSTILE[0], "ok": False, "detail": everything}],
    }  # fmt: skip
    for order in ("ab", "ba"):
        yield {
            "type": "vote", "rollout_id": HOSTILE_ID, "a": 0, "b": 1, "order": order, "sample": 0,
            "preferred": "a" if order == "ab" else "b", "judge": HOSTILE[1], "reasoning": everything,
        }  # fmt: skip


def _hack_verdict(rollout: str, branch: int, text: str) -> Line:
    """A verdict of a hack verifier with a text in every field."""
    signal = {
        "rule": text[:60],
        "class": "suspected",
        "source": "files",
        "path": text[:200],
        "line": 3,
        "evidence": text,
    }
    details = {"signals": [signal], "looks": [{"name": text, "made": True}, {"name": text, "made": False, "why": text}]}
    return {
        "type": "check", "rollout_id": rollout, "branch_index": branch, "name": "hacks", "status": "unknown",
        "details": dumps(details), "hint": text,
    }  # fmt: skip


def _hostile_conversation(everything: str) -> Iterator[Line]:
    """A branch that is told exactly, and in which ids, roles, names, models and agents are hostile, too."""
    call = {"id": HOSTILE[0], "name": HOSTILE[1], "arguments": '{"path": "</pre><script>alert(5)</script>"}'}
    said = (
        ("message", {"id": HOSTILE[0], "role": "system", "content": everything}),
        ("message", {"id": HOSTILE[1], "role": "user", "content": everything}),
        ("message", {"id": HOSTILE[2], "role": "assistant", "content": everything, "reasoning": everything, "tool_calls": [call]}),
        ("model_call", {"call_id": HOSTILE[3], "context": {"after": None, "keep": 0, "add": [HOSTILE[0], HOSTILE[1]]},
                        "response": HOSTILE[2], "model": HOSTILE[1], "agent": HOSTILE[0], "policy_version": HOSTILE[0],
                        "tokens": {"prompt_ids": [1, 2], "ids": [3], "tokenizer": HOSTILE[1]}}),
        ("message", {"id": "t", "role": "tool", "tool_call_id": HOSTILE[0], "name": HOSTILE[1], "content": everything}),
        ("error", {"error": everything}),
    )  # fmt: skip
    for seq, (kind, data) in enumerate(said):
        channel = "conversation" if kind in ("message", "model_call") else "text"
        yield event(HOSTILE_ID, 2, seq, channel, kind, **data)


def secrets() -> list[tuple[str, str]]:
    """Secrets of the corpus, each with a text around it."""
    found = [(secret.text, f"the key is {secret.text} and that is it") for secret in FORMATS]
    return found + [(each.secret, each.text) for each in IN_CONTEXT]


def secret_lines() -> Iterator[Line]:
    """A rollout with every secret of the corpus in its texts."""
    name, texts = "secrets", [text for _, text in secrets()]
    yield {
        "type": "rollout",
        "rollout_id": name,
        "task": "\n".join(texts[:4]),
        "branches": 1,
        "required": ["build"],
        "labels": {"note": texts[0]},
    }
    seq = 0
    for number, text in enumerate(texts):
        call = f"c{number}"
        yield event(
            name, 0, seq, "tool", "tool_call", toolName="run", args={"command": text}, callId=call, stepIndex=number
        )
        yield event(name, 0, seq + 1, "tool", "tool_result", callId=call, output=text)
        seq += 2
    yield event(name, 0, seq, "text", "final_answer", answer=texts[1])
    yield {
        "type": "build",
        "rollout_id": name,
        "branch_index": 0,
        "status": "success",
        "exit_code": 0,
        "stdout": {"text": texts[2], "digest": "d"},
    }
    yield _hack_verdict(name, 0, " ".join(texts[:3]))
