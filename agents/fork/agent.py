"""The coding agent: asks the model for turns, runs its calls in the sandbox, and writes every step to the log as it happens.

A branch always ends with a status. An answer that is empty is a failure with its reason, never an answer; trouble of the
model's provider or of the sandbox is infra_error, never the agent's failure.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from agents.fork.budget import Budgets, Spent, exhausted
from agents.fork.model import (
    Answers,
    Ask,
    Assistant,
    Entry,
    Model,
    ModelTroubleError,
    Tokens,
    ToolAnswer,
    ToolUse,
    Turn,
)
from agents.fork.observed import observed
from agents.fork.recorder import Recorder
from agents.fork.retry import ATTEMPTS, wait_s
from agents.fork.sandbox import SandboxError
from agents.fork.tools import DEFINITIONS, Outcome, Tools
from agents.summarize.branch import ToolLimits
from schemas.emission import EmissionConfig
from schemas.events import AgentEvent, EndStatus
from schemas.lifecycle import RolloutOpened

CUT_OFF = Outcome(error_code="cut_off", error="the turn was cut off at its length limit before this call was complete")

Sleep = Callable[[float], Awaitable[None]]


class Ending(NamedTuple):
    """How a branch came to its end."""

    status: EndStatus
    error: str | None = None


class _EndError(Exception):
    """The branch ends here."""

    def __init__(self, status: EndStatus, error: str) -> None:
        super().__init__(error)
        self.ending = Ending(status, error)


@dataclass
class Agent:
    """One branch while it runs."""

    opened: RolloutOpened
    model: Model
    tools: Tools
    recorder: Recorder
    budgets: Budgets
    spent: Spent
    temperature: float | None = None
    seed: int | None = None
    redacting: bool = True
    sleep: Sleep = asyncio.sleep
    patience: float = 1.0
    """Scales the waits between attempts."""
    notice: Callable[[str], None] = lambda _what: None
    """Told what the agent does now."""
    entries: list[Entry] = field(default_factory=list)
    """The conversation so far; a fork from the middle begins with some."""
    steps: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    """Of this run, prefix included, as events count them."""
    own_tokens: Tokens = field(default_factory=Tokens)
    """Of this branch alone, as budgets count them."""

    def __post_init__(self) -> None:
        self._limits = ToolLimits(EmissionConfig(), self.opened).of

    async def run(self) -> Ending:
        """Work until there is an answer (its event is taken, not yet written), or a reason why there is none."""
        try:
            while True:
                over = exhausted(self.budgets, self.steps, self.own_tokens, self.spent)
                if over is not None:
                    return Ending(over.status, over.why)
                turn = await self._turn()
                if not turn.calls:
                    return self._answer(turn)
                self._record_calls(turn)
                await self.recorder.flush()
                await self._call_all(turn)
                await self.recorder.flush()
        except _EndError as end:
            return end.ending
        except SandboxError as error:
            return Ending("infra_error", f"sandbox: {error}")

    def start(self) -> None:
        """The first event."""
        tools = [tool["function"]["name"] for tool in DEFINITIONS]
        config = {
            "model": self.model.name,
            "tools": tools,
            "maxSteps": self.budgets.steps,
            "temperature": self.temperature,
        }
        self.recorder.event("run_start", {"task": self.opened.task, "agentConfig": config})

    # -- a turn --------------------------------------------------------------------------------------------------------

    async def _turn(self) -> Turn:
        self.steps += 1
        self.notice(f"step {self.steps}: asks the model")
        self.recorder.event("step_start", {"step": self.steps})
        turn = await self._ask()
        self.tokens, self.own_tokens = self.tokens.plus(turn.tokens), self.own_tokens.plus(turn.tokens)
        self.spent.tokens += turn.tokens.total
        if turn.text and turn.calls:
            self.recorder.event("thinking_delta", {"delta": turn.text, "step": self.steps})
        self.recorder.event(
            "model_done",
            {
                "modelId": self.model.name,
                "step": self.steps,
                "finishReason": turn.stop,
                "inputTokens": self.tokens.input,
                "outputTokens": self.tokens.output,
                "cacheReadTokens": self.tokens.cached,
            },
        )
        return turn

    async def _ask(self) -> Turn:
        """The model's next turn, after as many attempts as it takes; each one that failed is on the log before the next."""
        ask = Ask(
            system=self.opened.system_prompt or "",
            task=self.opened.task,
            entries=tuple(self.entries),
            tools=tuple(tool["function"] for tool in DEFINITIONS),
            temperature=self.temperature,
            seed=self.seed,
        )
        failures = 0
        while True:
            try:
                return await self.model.ask(ask)
            except ModelTroubleError as trouble:
                failures += 1
                again = trouble.may_pass and failures < ATTEMPTS
                wait = wait_s(failures, trouble.after_s, self.recorder.trace_id, self.patience) if again else None
                self.recorder.event(
                    "error_recovery",
                    {
                        "step": self.steps,
                        "attempt": failures,
                        "kind": trouble.kind,
                        "error": str(trouble),
                        "action": "retry" if again else "give_up",
                        "waitMs": None if wait is None else round(wait * 1000),
                    },
                )
                await self.recorder.flush()
                self.notice(f"step {self.steps}: {trouble.kind}, attempt {failures}")
                if wait is None:
                    raise _EndError(
                        "infra_error", f"model: {trouble.kind} after {failures} attempts: {trouble}"
                    ) from None
                await self.sleep(wait)

    # -- its calls -----------------------------------------------------------------------------------------------------

    async def _call_all(self, turn: Turn) -> None:
        """All calls of a turn, in the model's order; what it sees of each is what will be trained on."""
        answers = []
        for call in turn.calls:
            self.notice(f"step {self.steps}: {call.name}")
            outcome = CUT_OFF if turn.stop == "max_tokens" else await self.tools.call(call.name, call.arguments)
            answers.append(self._answered(call, self._record_result(call, outcome)))
            if self.recorder.is_full:
                await self.recorder.flush()
        self.entries += [Assistant(turn.text, turn.calls), Answers(tuple(answers))]

    def _record_calls(self, turn: Turn) -> None:
        """The calls of a turn."""
        for call in turn.calls:
            batch = {
                "batchId": f"{self.recorder.trace_id}/{self.steps}",
                "batchSize": len(turn.calls),
                "stepIndex": self.steps,
            }
            data = {"toolName": call.name, "args": dict(call.arguments), "callId": call.call_id}
            self.recorder.event("tool_call", data | batch)

    def _record_result(self, call: ToolUse, outcome: Outcome) -> AgentEvent:
        """The result of a call."""
        data = {"callId": call.call_id, "toolName": call.name, "output": outcome.output, "stepIndex": self.steps}
        if outcome.error is not None:
            data["error"] = {"code": outcome.error_code, "message": outcome.error}
        return self.recorder.event("tool_result", data)

    def _answered(self, call: ToolUse, result: AgentEvent) -> ToolAnswer:
        content, failed = observed(result, call.name, self._limits, redacting=self.redacting)
        return ToolAnswer(call.call_id, content, failed)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _answer(self, turn: Turn) -> Ending:
        if turn.stop == "refusal":
            raise _EndError("failed", "the model refused the task")
        if turn.stop == "max_tokens":
            raise _EndError("failed", "the model's answer was cut off at its length limit")
        if not turn.text.strip():
            raise _EndError("failed", "the model ended its work without an answer")
        self.recorder.event("final_answer", {"answer": turn.text.strip()})
        return Ending("answered")
