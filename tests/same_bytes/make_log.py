"""Write a log that `make same-bytes` keeps for ever: a live worker's, with every kind of fact, under several configurations.

    .venv/bin/python -m tests.same_bytes.make_log tests/same_bytes/v2
    .venv/bin/python -m tests.same_bytes.check --record v2

It is run once for each emission version, by the code that releases it. Rollouts come from a seed; a real worker and a real
judge decide, so times and ids are those of the day. The signing key is thrown away, its public half is kept beside the log.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import combinations, count, product
from pathlib import Path
from typing import Any

from streams.cluster import broker
from streams.cluster.broker import places
from tests.agents.conversations.chats import ChatAgent
from tests.live import Worker

Line = dict[str, Any]
ROOT = Path(__file__).parents[2]

RULES = """
judge = "rules-1"

[[rule]]
share = 0.08
cause = "timeout"

[[rule]]
prefer = "contains"
text = "all tests pass"

[[rule]]
share = 0.2
prefer = "first"

[[rule]]
prefer = "longest"
"""

PHASES: tuple[dict[str, str], ...] = (
    {"BRAID_CLOSING__IDLE_MS": "2500"},
    {"BRAID_CLOSING__IDLE_MS": "2500", "BRAID_EMISSION__JUDGE__KIND": "scripted"},
    {
        "BRAID_CLOSING__IDLE_MS": "2500", "BRAID_CLOSING__JUDGE_DEADLINE_MS": "4000",
        "BRAID_EMISSION__JUDGE__KIND": "external", "BRAID_EMISSION__JUDGE__MODE": "pairwise+scalar",
        "BRAID_EMISSION__RANKING__WEIGHTS": json.dumps([
            {"key": "objective", "weight": 1.0, "component": "objective"},
            {"key": "judge", "weight": 0.2, "component": "judge"},
            {"key": "scalar", "weight": 0.1, "component": "judge_scalar"},
        ]),
    },
    {
        "BRAID_CLOSING__IDLE_MS": "2500", "BRAID_EMISSION__REDACT": "false", "BRAID_EMISSION__TURN_TEXT": "false",
        "BRAID_EMISSION__SUMMARIZE__MAX_BYTES": "300", "BRAID_EMISSION__PAIRS__MIN_PROBABILITY": "0.6",
        "BRAID_EMISSION__PAIRS__MAX_PER_ROLLOUT": "9", "BRAID_EMISSION__REQUIRED": '["build", "visual"]',
        "BRAID_EMISSION__REASONING": "drop", "BRAID_EMISSION__SUBAGENTS": "drop",
    },
    {
        "BRAID_CLOSING__IDLE_MS": "2500", "BRAID_EMISSION__REWARDS__HACKED_ROWS": "penalise",
        "BRAID_EMISSION__MAX_OUTPUT_BYTES": "2000",
    },
)  # fmt: skip
"""Configurations of the worker, one after the other."""

BUILDS: tuple[Line, ...] = (
    {"status": "success", "exit_code": 0},
    {"status": "success", "exit_code": 0, "tests": {"passed": 9, "failed": 0, "skipped": 0, "total": 9}, "coverage": 0.83},
    {"status": "success", "exit_code": 0, "tests": {"passed": 5, "failed": 0, "skipped": 5, "total": 10}},
    {"status": "success", "exit_code": 0, "tests": {"passed": 1, "failed": 9, "skipped": 0, "total": 10}},
    {"status": "success", "exit_code": 0, "tests": {"passed": 3, "failed": 0, "skipped": 0, "total": 3}, "baseline_tests": 9},
    {"status": "success", "exit_code": 0, "protected_paths_intact": False},
    {"status": "failure", "exit_code": 1, "tests": {"passed": 9, "failed": 1, "skipped": 0, "total": 10}, "coverage": 1.0},
    {"status": "failure", "exit_code": 1, "stage": "test", "stdout_tail": "FAILED tests/test_a.py::test_b", "wall_ms": 1200},
    {"status": "failure", "exit_code": 0},
    {"status": "success", "exit_code": 3},
    {"status": "success"},
    {"status": "running"},
    {"status": "infra_error"},
)  # fmt: skip

VISUALS: tuple[Line, ...] = (
    {"verdict": "pass"},
    {"verdict": "fail", "reason": "the page is blank"},
    {"verdict": "pending"},
    {"renders_non_empty": True, "dom_probes": [{"name": "title", "ok": True}]},
    {"uncaught_errors": ["TypeError: x is not a function"], "verdict": "pass"},
    {"console_errors": ["404 /favicon.ico"]},
)

ANSWERS = ("Done: all tests pass.", "It works, ü and 雪 too.", "No.", "", " \n", "Added the button.\nSee app.py.", "42")
SECRET = "export TOKEN=ghp_" + "a1B2c3D4e5" * 4
OUTPUTS: tuple[Any, ...] = (
    "ok", "", None, 7, True, {"rows": [1, 2.5, None, "x"]}, ["a", {"b": []}], "line of output\n" * 300, "x" * 3000,
    f"{SECRET}\nwritten by ann@example.org from /home/ann/project", "naïve café 🚲 " * 90,
)  # fmt: skip
TOOLS = ("run", "write_file", "read_file", "git", "http_get")

HACKS: tuple[Line, ...] = (
    {"status": "pass", "details": {"signals": [], "looks": [{"name": "canary", "made": True}]}},
    {"status": "unknown", "details": {"signals": [], "looks": [{"name": "canary", "made": False, "why": "no tests"}]}},
    {"status": "fail", "details": {"signals": [
        {"rule": "L.canary", "class": "confirmed", "source": "experiment", "evidence": "the canary did not fail"}]}},
    {"status": "unknown", "details": {"signals": [
        {"rule": "T5.harness_hook", "class": "suspected", "source": "files", "path": "conftest.py", "line": 3,
         "evidence": "pytest_runtest_makereport"}]}},
)  # fmt: skip


class Maker:
    """Lines of rollouts, from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._clock = count(1_768_000_000_000, 137)

    def rollout(self, name: str) -> list[Line]:
        """One rollout, in a shape that its name's number decides, and details that chance decides."""
        pick, n = self.chance.random(), self.chance.choice((1, 2, 3, 4, 4, 5, 8))
        head = {"rollout_id": name}
        opening: Line = {
            "type": "rollout", **head, "task": f"Mend {name}: make every test pass.", "branches": n,
            "required": self.chance.choice((None, ["build"], ["build"], ["build"], ["build", "visual"], ["lint"], [])),
            "system_prompt": self.chance.choice((None, "Be brief.")), "deadline_ms": 6000,
            "tools": self.chance.choice(([], [{"type": "function", "function": {"name": "run", "parameters": {}}}])),
            "labels": {"team": self.chance.choice("ab")},
            "awaited": self.chance.choice(([], [], ["hacks"])), "allow_failing": self.chance.random() < 0.1,
            "task_shown": self.chance.random() > 0.1,
        }  # fmt: skip
        if self.chance.random() < 0.7:
            opening |= {"repo_commit": "0c0ffee", "tool_manifest_digest": "d" * 64}
        if self.chance.random() < 0.2:
            opening["summarize"] = [{"tool": "read_file", "max_bytes": 2000}]
        lines: list[Line] = []
        opened = pick > 0.12
        for index in range(n):
            lines += self._branch(name, index, own_task=not opened)
        lines += self._votes(name, n)
        self.chance.shuffle(lines)
        if opened:
            lines.insert(0, {key: value for key, value in opening.items() if value is not None})
        if 0.12 < pick < 0.18:
            lines.insert(self.chance.randrange(1, len(lines)), {"type": "cancel", **head})
        elif 0.18 < pick < 0.26:
            lines.append({"type": "close", **head})
        return lines

    def _branch(self, name: str, index: int, *, own_task: bool) -> list[Line]:
        place = {"rollout_id": name, "branch_index": index}
        lines: list[Line] = []
        attempts = 2 if self.chance.random() < 0.12 else 1
        for attempt in range(attempts):
            events = self._story(index, attempt, own_task=own_task)
            chat = events[0]["channel"] == "conversation"  # nothing in it ends a branch
            ended = self.chance.random()
            if attempt < attempts - 1 or ended < 0.06:
                events.pop()  # it broke off without a word
            if ended > 0.97:
                del events[len(events) // 2]
                numbers = [*range(len(events) // 2), *range(len(events) // 2 + 1, len(events) + 1)]  # a gap
            else:
                numbers = [*range(len(events))]
            about = {"agent": {"name": "sample", "model": "m-1", "version": "3"}, "temperature": 0.7, "seed": index}
            lines += [
                {
                    "type": "event",
                    **place,
                    "attempt": attempt,
                    "seq": seq,
                    "event": event,
                    **(about if seq == 0 else {}),
                }
                for seq, event in zip(numbers, events, strict=True)
            ]
            if self.chance.random() < 0.1:
                lines.append(self.chance.choice(lines))  # said twice
            if self.chance.random() < 0.04:
                other = {"channel": "status", "event": "status", "data": {"phase": "another story"}}
                lines.append({"type": "event", **place, "attempt": attempt, "seq": 1, "event": other})
            if ended > 0.88 or (chat and attempt == attempts - 1):
                status = self.chance.choice(
                    ("answered", "failed", "aborted", "infra_error") if ended > 0.88 else ("answered",)
                )
                lines.append({"type": "end", **place, "attempt": attempt, "status": status, "error": "529 overloaded"})
        verdict = {**place, "attempt": attempts - 1}
        builds = [self.chance.choice(BUILDS[:8]) if self.chance.random() < 0.8 else self.chance.choice(BUILDS)]
        if self.chance.random() < 0.1:
            builds.append(self.chance.choice(BUILDS))
        lines += [{"type": "build", **verdict, **build} for build in builds]
        if self.chance.random() < 0.5:
            lines.append({"type": "visual", **verdict, **self.chance.choice(VISUALS)})
        if self.chance.random() < 0.5:
            status = self.chance.choice(("pass", "fail", "unknown"))
            lines.append(
                {"type": "check", **verdict, "name": "lint", "status": status, "score": 0.5, "hint": "use ruff"}
            )
        lines += self._hacks(verdict)
        return lines

    def _hacks(self, verdict: Line) -> list[Line]:
        if self.chance.random() > 0.6:
            return []
        found = self.chance.choice(HACKS)
        return [{"type": "check", **verdict, "name": "hacks", **found, "details": json.dumps(found["details"])}]

    def _story(self, index: int, attempt: int, *, own_task: bool) -> list[Line]:
        """The events of a branch, in one of the three forms."""
        form = self.chance.random()
        if form < 0.4:
            return self._chat(index)
        return self._turns(index) if form < 0.5 else self._events(index, attempt, own_task=own_task)

    def _chat(self, index: int) -> list[Line]:
        """An exact conversation: turns with tools, reasoning and token ids, a sub-agent, a compaction, a failed call."""
        chat = ChatAgent()
        context = [
            chat.message("system", "Be brief."),
            chat.message("user", f"Mend it, number {index % 2 if self.chance.random() < 0.2 else 0}."),
        ]
        prompt, after = [*range(7, 60)], None
        with_tokens, drops = self.chance.random() < 0.5, self.chance.random() < 0.1
        for turn in range(self.chance.randrange(1, 5)):
            if self.chance.random() < 0.15:
                after = chat.ask(context, None, after)
            told: Line = {"reasoning": f"I think {turn}."} if self.chance.random() < 0.4 else {}
            last = self.chance.random() < 0.3
            called = {"id": f"t{turn}", "name": "run", "arguments": json.dumps({"command": f"make {turn}"})}
            calls = {} if last else {"tool_calls": [called]}
            answer = chat.message("assistant", self.chance.choice(ANSWERS[:3]), **told, **calls)
            more: Line = {
                "sampling": {"temperature": 0.7},
                "policy_version": f"step-{turn // 2}",
                "finish_reason": "stop",
            }
            if with_tokens:
                ids = [self.chance.randrange(50_000) for _ in range(self.chance.randrange(1, 9))]
                more["tokens"] = {"prompt_ids": prompt, "ids": ids, "logprobs": [-0.125 * at for at in range(len(ids))]}
                prompt = [*prompt, *ids, 5, 6] if self.chance.random() < 0.8 else [1, *prompt, *ids]
            usage = {"input": 90 + turn, "output": 7, "cached": 3}
            after = chat.ask(context, answer, after, usage=usage, **more)
            context = [*context, answer]
            if last:
                context.append(chat.message("user", "And then?"))
                continue
            output = self.chance.choice([each for each in OUTPUTS if isinstance(each, str)])
            context.append(chat.message("tool", output, tool_call_id=f"t{turn}"))
            if self.chance.random() < 0.1:
                brief = [chat.message("user", "Look it up.")]
                chat.ask(brief, chat.message("assistant", "It is there.", agent="scout"), agent="scout")
            if drops and turn == 1:
                context = [context[0], chat.message("user", "So far: half of it is mended."), *context[-2:]]
        chat.ask(context, chat.message("assistant", self.chance.choice(ANSWERS)), after)
        return [{"traceId": "t", "timestampMs": next(self._clock), **line["event"]} for line in chat.lines]

    def _turns(self, index: int) -> list[Line]:
        """A transcript: turns in their order."""
        found: list[tuple[str, str, Line]] = [("text", "run_start", {"task": f"Task number {index % 2}"})]
        for step in range(self.chance.randrange(1, 4)):
            found.append(("thinking", "reasoning", {"text": f"Step {step}.", "step": step}))
            found.append(("text", "assistant_message", {"text": f"I do {step}.", "step": step}))
            found += self._call(step, 0, index)
            if self.chance.random() < 0.5:
                found.append(("user", "user_message", {"text": "Go on.", "step": step}))
        found.append(("text", "final_answer", {"answer": self.chance.choice(ANSWERS)}))
        return [
            {"traceId": "t", "channel": channel, "event": kind, "data": data, "timestampMs": next(self._clock)}
            for channel, kind, data in found
        ]

    def _events(self, index: int, attempt: int, *, own_task: bool) -> list[Line]:
        start: Line = {"agentConfig": {"model": "m-1", "tools": list(TOOLS), "maxSteps": 9}}
        if own_task:
            start["task"] = f"Task number {index % 2}"
        found: list[tuple[str, str, Line]] = [("text", "run_start", start)]
        for step in range(self.chance.randrange(4)):
            found.append(("thinking", "step_start", {"step": step}))
            found += [
                ("thinking", "thinking_delta", {"delta": f"I look at {step}. ", "step": step})
            ] * self.chance.randrange(3)
            used = {
                "modelId": "m-1",
                "step": step,
                "inputTokens": 900 * (step + 1),
                "outputTokens": 70,
                "estimatedUsd": 0.01,
            }
            found.append(("model", "model_done", used))
            for call in range(self.chance.choice((0, 1, 1, 2))):
                found += self._call(step, call, index + attempt)
        if self.chance.random() < 0.15:
            found.append(("status", "guardrail_tripwire", {"decision": "allow", "rule": "no-network"}))
        last = self.chance.random()
        if last < 0.9:
            found.append(("text", "final_answer", {"answer": self.chance.choice(ANSWERS)}))
        else:
            found.append(("text", "error", {"error": self.chance.choice(("ValueError: no", "529 overloaded"))}))
        return [
            {"traceId": "t", "channel": channel, "event": kind, "data": data, "timestampMs": next(self._clock)}
            for channel, kind, data in found
        ]

    def _call(self, step: int, call: int, turn: int) -> list[tuple[str, str, Line]]:
        name = self.chance.choice(TOOLS)
        call_id = f"c{step}-{call}" if self.chance.random() < 0.9 else "c"
        args = self.chance.choice(
            ({"command": f"pytest -k {turn}"}, {"path": "app.py", "content": "x = 1\n"}, {"n": 1.5}, {})
        )
        result: Line = {"callId": call_id, "toolName": name, "output": self.chance.choice(OUTPUTS)}
        if self.chance.random() < 0.1:
            result["error"] = {"code": "E1", "message": "it broke"}
        calls = [
            (
                "tool",
                "tool_call",
                {"toolName": name, "args": args, "callId": call_id, "stepIndex": step, "batchId": f"b{step}"},
            )
        ]
        if self.chance.random() < 0.9:
            calls.append(("tool", "tool_result", result))
        return calls

    def _votes(self, name: str, n: int) -> list[Line]:
        lines: list[Line] = []
        if self.chance.random() < 0.5:
            return lines
        for a, b in combinations(range(n), 2):
            likely = self.chance.choice(("a", "b", "tie", None))
            for order, sample in product(("ab", "ba"), range(2)):
                preferred = likely if self.chance.random() < 0.9 else "b"
                vote = {
                    "type": "vote",
                    "rollout_id": name,
                    "a": a,
                    "b": b,
                    "order": order,
                    "sample": sample,
                    "judge": "ext",
                }
                lines.append(vote | {"preferred": preferred, "reasoning": f"{a} or {b}"})
        for index in range(n):
            score = self.chance.choice((None, 2.5, 7.0, 9.0))
            lines.append({"type": "vote", "rollout_id": name, "a": index, "score": score, "sample": 0, "judge": "ext"})
        return lines


def main(out: Path, rollouts: int = 200, seed: int = 20_261_118) -> None:
    """Start a broker, let rollouts run through a worker in every phase, archive everything."""
    with tempfile.TemporaryDirectory() as held:
        work = Path(held)
        endpoint = broker.start(work / "broker", places.cache_dir())
        env = os.environ | {
            "BRAID_KAFKA": endpoint.bootstrap, "BRAID_REGISTRY": endpoint.registry or "", "BRAID_PARTITIONS": "4",
            "BRAID_SIGNING_KEY": str(work / "key.pem"), "BRAID_STATE_DIR": str(work / "state"),
        }  # fmt: skip
        try:
            public = _braid(env, "keys", "new", "--out", work / "key.pem", "--key-id", "same-bytes", "--json")
            _braid(env, "up")
            maker = Maker(seed)
            asyncio.run(_phases(maker, env, work, rollouts))
            _braid(env, "archive", "--all", "--out", out / "archive")
            (out / "public-key.json").write_text(public)
        finally:
            broker.stop(work / "broker", wipe=True)


async def _phases(maker: Maker, env: dict[str, str], work: Path, rollouts: int) -> None:
    from streams.cluster.config import load

    os.environ.update({name: env[name] for name in ("BRAID_KAFKA", "BRAID_REGISTRY", "BRAID_PARTITIONS")})
    (work / "rules.toml").write_text(RULES)
    numbers = count()
    for phase, chosen in enumerate(PHASES):
        wave = [f"rollout-{next(numbers):03}" for _ in range(rollouts // len(PHASES))]
        lines = [line for name in wave for line in maker.rollout(name)]
        if phase == 0:
            lines += _compliance(env, work)
        path = work / f"lines-{phase}.ndjson"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        kept = {key: env[key] for key in ("BRAID_SIGNING_KEY", "BRAID_STATE_DIR")}
        with Worker(load(), work / f"worker-{phase}.log", **kept, **chosen) as worker:
            await worker.ready()
            judge = None
            if chosen.get("BRAID_EMISSION__JUDGE__KIND") == "scripted":
                command = [sys.executable, "-m", "streams.cli", "judge", "worker", "--rules", str(work / "rules.toml")]
                judge = subprocess.Popen(command, env=env | chosen, stderr=subprocess.DEVNULL)
            _braid(env | chosen, "ingest", "--keep-going", "--rejected", work / "rejected.jsonl", path)
            ends = time.monotonic() + 60
            while time.monotonic() < ends:
                done = json.loads(_braid(env, "rollouts", "--json", "--status", "closed", "--limit", "1000"))
                if len(done["rollouts"] if isinstance(done, dict) else done) >= (phase + 1) * len(wave):
                    break
                await asyncio.sleep(1)
            if judge is not None:
                judge.terminate()
                judge.wait()
            worker.stop()
            sys.stderr.write(f"phase {phase}: done\n")


def _compliance(env: dict[str, str], work: Path) -> list[Line]:
    """The lines of the sample's compliance run: every mode, two seeds."""
    sample, log = ROOT / "docs" / "examples" / "comply", work / "comply.ndjson"
    words = ("--script", sample / "answers.toml", "--seeds", "1,2", "--id", "comply", "--log", log)
    _braid(env, "comply", "run", sample / "tasks.jsonl", *words)
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def _braid(env: dict[str, str], *words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli", *map(str, words)], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"braid {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
