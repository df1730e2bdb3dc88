"""A model as a judge: a strict structured answer, with retries.

Every call is counted: after an unusable answer it asks up to twice more; after 429, 5xx and lost connections it waits
as the server says (up to a limit) and tries again. A time-out is not: the call may have been paid for. A comparison
that is left without an answer is a cause, never a preference.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from agents.judge.answers import Answer, UnusableAnswerError, read_text
from agents.judge.judge import JudgeSetupError, JudgeTroubleError, added
from agents.judge.prompt import Prompt
from agents.models.conversation import Message
from agents.models.model import Model, ModelRequest, ModelResponse, ResponseSchema, SamplingParameters, TokenUsage
from agents.models.model_error import ErrorKind, ModelError
from schemas.judging import CONTENT_JUDGE, MissingCause, Usage

ANSWER = "answer"

UNUSABLE_RETRIES = 2
"""How often the model is asked again after an unusable answer."""

ATTEMPTS = 5
"""Attempts that end in 429, 5xx or a lost connection before the call is given up."""

FIRST_WAIT_S = 0.5

LATER: Mapping[ErrorKind, MissingCause] = {
    "rate_limited": "rate_limited", "overloaded": "http_5xx", "http_5xx": "http_5xx",
    "connection": "unknown", "cut_stream": "unknown", "empty_stream": "unknown",
}  # fmt: skip
"""Errors that are waited out, and the cause when they stay."""

AT_ONCE: Mapping[ErrorKind, MissingCause] = {
    "timeout": "timeout", "too_large": "unparseable", "bad_request": "refused", "refused": "refused",
}  # fmt: skip
"""Errors that another call would not fix."""


class JudgeOptions(NamedTuple):
    """Options of the calls to the model."""

    timeout_s: float = 60.0
    """Limit of one whole call."""
    max_tokens: int = 1024
    temperature: float | None = 0.1
    """Left out for models that do not accept one."""
    longest_wait_s: float = 60.0
    """Longest wait, however long a server asks to wait."""
    usd_per_mtok_in: float | None = None
    usd_per_mtok_out: float | None = None


class ModelJudge:
    """Asks a model. `allow` is called before every call, retries included; if it returns False, the budget is spent."""

    def __init__(
        self,
        model: Model,
        options: JudgeOptions,
        sleep: Callable[[float], Awaitable[None]],
        allow: Callable[[], bool] = lambda: True,
    ) -> None:
        if model.name == CONTENT_JUDGE:
            raise JudgeSetupError(
                f"emission.judge.model cannot be {CONTENT_JUDGE!r}: votes with that name are ties by content, nobody's answer"
            )
        self.name = model.name
        self._model = model
        self._options = options
        self._sleep = sleep
        self._allow = allow
        self._temperature = options.temperature

    async def ask(self, prompt: Prompt) -> Answer:
        """The model's answer, after as many calls as it takes."""
        usage: Usage | None = None
        unusable = failed = 0
        while True:
            try:
                response = await self._call(prompt)
                usage = added(usage, self._usage(response.usage))
                return read_response(response, scalar=prompt.scalar)._replace(usage=usage)
            except UnusableAnswerError as error:
                unusable += 1
                if unusable > UNUSABLE_RETRIES:
                    raise JudgeTroubleError("unparseable", str(error), usage) from None
            except _TryLaterError as error:
                failed += 1
                if failed >= ATTEMPTS:
                    raise JudgeTroubleError(error.cause, str(error), usage) from None
                await self._sleep(self._wait(error.after, failed, prompt))
            except JudgeTroubleError as error:
                raise JudgeTroubleError(error.cause, str(error), usage) from None

    async def close(self) -> None:
        """Close the model's connections."""
        await self._model.close()

    async def _call(self, prompt: Prompt) -> ModelResponse:
        """One call."""
        if not self._allow():
            raise JudgeTroubleError("budget", "the budget of calls per hour is spent")
        temperature = self._temperature
        try:
            return await self._model.call(self._request(prompt, temperature))
        except ModelError as error:
            if error.kind == "bad_request" and error.status == 400:
                if temperature is not None:  # some models take no temperature
                    self._temperature = None
                    raise _TryLaterError("refused", str(error), 0.0) from None
                self._temperature = self._options.temperature  # it was not that
            raise _trouble(error) from None

    def _request(self, prompt: Prompt, temperature: float | None) -> ModelRequest:
        return ModelRequest(
            model=self.name,
            system=prompt.system,
            messages=(Message("user", prompt.user),),
            sampling=SamplingParameters(temperature=temperature, max_tokens=self._options.max_tokens),
            response_schema=ResponseSchema(ANSWER, "Give your judgement.", prompt.answer_schema),
            timeout_s=self._options.timeout_s,
            stream=False,
        )

    def _wait(self, after: float | None, failed: int, prompt: Prompt) -> float:
        """How long to wait: the server's value, else longer each time; with jitter, so that calls do not return at
        once.
        """
        longest = self._options.longest_wait_s
        if after is not None:
            return min(max(0.0, after), longest)
        spread = 1.0 - int(prompt.hash[:2], 16) / 1024
        return min(FIRST_WAIT_S * 2.0 ** (failed - 1), longest) * spread

    def _usage(self, used: TokenUsage) -> Usage | None:
        if used == TokenUsage():
            return None
        price_in, price_out = self._options.usd_per_mtok_in, self._options.usd_per_mtok_out
        usd = None
        if used.input is not None and used.output is not None and price_in is not None and price_out is not None:
            usd = (used.input * price_in + used.output * price_out) / 1e6
        return Usage(input_tokens=used.input, output_tokens=used.output, cached_tokens=used.cached, usd=usd)


class _TryLaterError(Exception):
    """The service is busy or away."""

    def __init__(self, cause: MissingCause, why: str, after: float | None) -> None:
        super().__init__(why)
        self.cause = cause
        self.after = after


def read_response(response: ModelResponse, *, scalar: bool) -> Answer:
    """The answer in a model's response."""
    if response.finish_reason in ("refusal", "content_filter"):
        raise JudgeTroubleError("refused", "the model refused to judge")
    if response.structured is None:
        calls = len(response.message.tool_calls)
        raise UnusableAnswerError(
            f"expected one answer in the form asked for, found none and {calls} calls; it stopped at {response.finish_reason}"
        )
    return read_text(response.structured, scalar=scalar)


def _trouble(error: ModelError) -> Exception:
    """The meaning of an error for a vote."""
    if error.kind in LATER:
        return _TryLaterError(LATER[error.kind], str(error), error.retry_after_s)
    if error.kind == "unparseable":
        return UnusableAnswerError(str(error))
    if error.kind == "setup":
        return JudgeSetupError(f"the judge's model cannot be asked: {error}")
    return JudgeTroubleError(AT_ONCE[error.kind], str(error))
