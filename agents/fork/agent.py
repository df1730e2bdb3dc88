"""The coding agent: asks the model for turns, runs its calls in the sandbox, and writes every step to the log as it happens.

A branch always ends with a status. An answer that is empty is a failure with its reason, never an answer; trouble of the
model's provider or of the sandbox is infra_error, never the agent's failure.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.fork.budget import Budgets, Spent, exhausted
from agents.fork.chat_log import ChatLog
from agents.fork.observed import observed
from agents.fork.recorder import Recorder
from agents.fork.retry import ATTEMPTS, wait_s
from agents.fork.sandbox import SandboxError
from agents.fork.tools import DEFINITIONS, Outcome, Tools, call_tool
from agents.models.conversation import Message, ToolCall, ToolDefinition, sendable
from agents.models.model import Model, ModelRequest, ModelResponse, SamplingParameters, TokenUsage
from agents.models.model_error import ModelError
from agents.summarize.branch import ToolLimits
from schemas.emission import EmissionConfig
from schemas.events import AgentEvent, EndStatus
from schemas.lifecycle import RolloutOpened

CUT_OFF = Outcome(error_code="cut_off", error="the turn was cut off at its length limit before this call was complete")

OFFERED = tuple(ToolDefinition(**tool["function"]) for tool in DEFINITIONS)

REFUSED = {
    "refusal": "the model refused the task",
    "content_filter": "the provider's content filter stopped the model",
}

Sleep = Callable[[float], Awaitable[None]]


class Ending(NamedTuple):
    """How a branch ended."""

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
    """Called with the agent's current step."""
    messages: list[Message] = field(default_factory=list)
    """The conversation after the task; a fork from the middle begins with some."""
    steps: int = 0
    tokens: TokenUsage = field(default_factory=TokenUsage)
    """Of this run, prefix included, as events count them."""
    own_tokens: TokenUsage = field(default_factory=TokenUsage)
    """Tokens of this branch alone, for its budgets."""

    def __post_init__(self) -> None:
        self._limits = ToolLimits(EmissionConfig(), self.opened).of
        self.chat = ChatLog(self.recorder, self.recorder.clock)

    async def run(self) -> Ending:
        """Work until there is an answer (its event is taken, not yet written), or a reason why there is none."""
        try:
            while True:
                over = exhausted(self.budgets, self.steps, self.own_tokens, self.spent)
                if over is not None:
                    return Ending(over.status, over.why)
                turn = await self._turn()
                if turn.finish_reason in REFUSED or not turn.message.tool_calls:
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

    async def _turn(self) -> ModelResponse:
        self.steps += 1
        self.notice(f"step {self.steps}: asks the model")
        self.recorder.event("step_start", {"step": self.steps})
        turn = await self._ask()
        self.tokens, self.own_tokens = self.tokens.plus(turn.usage), self.own_tokens.plus(turn.usage)
        self.spent.tokens += turn.usage.total
        if turn.message.text and turn.message.tool_calls:
            self.recorder.event("thinking_delta", {"delta": turn.message.text, "step": self.steps})
        self.recorder.event(
            "model_done",
            {
                "modelId": self.model.name,
                "step": self.steps,
                "finishReason": turn.finish_reason,
                "inputTokens": self.tokens.input,
                "outputTokens": self.tokens.output,
                "cacheReadTokens": self.tokens.cached,
            },
        )
        return turn

    async def _ask(self) -> ModelResponse:
        """The model's next turn, with retries; each failed call is on the log before the next."""
        failures = 0
        while True:
            request = self._request()
            call = self.chat.begin(request)
            try:
                response = await self.model.call(request)
            except ModelError as error:
                failures += 1
                self.chat.fail(call, error)
                await self._failed(error, failures)
            else:
                self.chat.end(call, response)
                return response

    def _request(self) -> ModelRequest:
        task = Message("user", self.opened.task)
        return ModelRequest(
            model=self.model.name,
            system=self.opened.system_prompt or "",
            messages=(task, *[self._sendable(message) for message in self.messages]),
            tools=OFFERED,
            sampling=SamplingParameters(
                temperature=self.temperature, seed=self.seed, max_tokens=self.budgets.turn_tokens
            ),
            timeout_s=self.budgets.turn_s,
            cache=True,
        )

    def _sendable(self, message: Message) -> Message:
        """A message in the form in which it is sent back to this model."""
        return sendable(message if self.model.takes_reasoning else message._replace(reasoning=""))

    async def _failed(self, error: ModelError, failures: int) -> None:
        """Write that a call failed, and wait for the next one. Raises _EndError if it must not be retried."""
        picky = error.status == 400 and self.temperature is not None and "temperature" in str(error)
        if picky:
            self.temperature = None  # some models take no temperature
        again = (picky or error.retry) and failures < ATTEMPTS
        wait = wait_s(failures, error.retry_after_s, self.recorder.trace_id, self.patience) if again else None
        self.recorder.event(
            "error_recovery",
            {
                "step": self.steps,
                "attempt": failures,
                "kind": error.kind,
                "error": str(error),
                "action": "retry" if again else "give_up",
                "waitMs": None if wait is None else round(wait * 1000),
            },
        )
        await self.recorder.flush()
        self.notice(f"step {self.steps}: {error.kind}, attempt {failures}")
        if wait is None:
            raise _EndError("infra_error", f"model: {error.kind} after {failures} attempts: {error}") from None
        await self.sleep(wait)

    # -- its calls -----------------------------------------------------------------------------------------------------

    async def _call_all(self, turn: ModelResponse) -> None:
        """Run all calls of a turn, in the model's order; their results as the model sees them are also the training
        data.
        """
        answers = []
        for call in turn.message.tool_calls:
            self.notice(f"step {self.steps}: {call.name}")
            outcome = CUT_OFF if turn.finish_reason == "max_tokens" else await call_tool(self.tools, call)
            answers.append(self._answered(call, self._record_result(call, outcome)))
            if self.recorder.is_full:
                await self.recorder.flush()
        self.messages += [turn.message, *answers]

    def _record_calls(self, turn: ModelResponse) -> None:
        """The calls of a turn; arguments that are no JSON object stay the text that the model wrote."""
        for call in turn.message.tool_calls:
            batch = {
                "batchId": f"{self.recorder.trace_id}/{self.steps}",
                "batchSize": len(turn.message.tool_calls),
                "stepIndex": self.steps,
            }
            data = {"toolName": call.name, "args": _arguments(call), "callId": call.id}
            self.recorder.event("tool_call", data | batch)

    def _record_result(self, call: ToolCall, outcome: Outcome) -> AgentEvent:
        """The result of a call."""
        data = {"callId": call.id, "toolName": call.name, "output": outcome.output, "stepIndex": self.steps}
        if outcome.error is not None:
            data["error"] = {"code": outcome.error_code, "message": outcome.error}
        return self.recorder.event("tool_result", data)

    def _answered(self, call: ToolCall, result: AgentEvent) -> Message:
        content, failed = observed(result, call.name, self._limits, redacting=self.redacting)
        return Message("tool", content, tool_call_id=call.id, name=call.name, is_error=failed)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _answer(self, turn: ModelResponse) -> Ending:
        if turn.finish_reason in REFUSED:
            raise _EndError("failed", REFUSED[turn.finish_reason])
        if turn.finish_reason == "max_tokens":
            raise _EndError("failed", "the model's answer was cut off at its length limit")
        answer = turn.message.text.strip()
        if not answer:
            raise _EndError("failed", "the model ended its work without an answer")
        self.recorder.event("final_answer", {"answer": answer})
        return Ending("answered")


def _arguments(call: ToolCall) -> dict[str, Any] | str:
    try:
        return call.parsed()
    except ValueError:
        return call.arguments
