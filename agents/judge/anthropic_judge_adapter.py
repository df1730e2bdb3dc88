"""A model behind the Messages API as a judge. The answer is the input of a tool that the model must call.

Retries are ours, not the client's, so that every one is counted: an unusable answer is asked for twice more; 429, 5xx and
lost connections wait as the server says (up to a limit) and are tried again. A time-out is not: the call may have been
paid for. What is left without an answer is a cause, never a preference.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anthropic
from anthropic import APIConnectionError, APIStatusError, APITimeoutError, AsyncAnthropic

from agents.judge.answers import Answer, UnusableAnswerError, read_value
from agents.judge.judge import JudgeSetupError, JudgeTroubleError, added
from agents.judge.prompt import Prompt
from schemas.jsontext import parse_object
from schemas.judging import CONTENT_JUDGE, MissingCause, Usage
from schemas.retry_after import seconds_until

TOOL = "answer"

UNUSABLE_RETRIES = 2
"""An answer that cannot be used is asked for so many times more."""

ATTEMPTS = 5
"""Calls that end in 429, 5xx or a lost connection before it is given up."""

FIRST_WAIT_S = 0.5

SETUP_STATUSES = frozenset({401, 402, 403, 404})
"""Statuses that all calls would end in: a key, an unpaid bill, a permission, the name of a model."""

UNPAID = re.compile(r"credit balance|billing", re.IGNORECASE)
"""What a 400 says when it is the account that is refused, not the question."""


class ModelOptions(NamedTuple):
    """How the model is asked."""

    model: str
    base_url: str = ""
    """Empty: ANTHROPIC_BASE_URL, else the API itself."""
    timeout_s: float = 60.0
    """For one call, all of it."""
    max_tokens: int = 1024
    temperature: float | None = 0.1
    """Left out for models that do not take one."""
    longest_wait_s: float = 60.0
    """However long a server asks to wait."""
    usd_per_mtok_in: float | None = None
    usd_per_mtok_out: float | None = None


class AnthropicJudge:
    """Asks a model. `allow` is asked before every call, retries included; when it says no, the budget is spent."""

    def __init__(
        self,
        options: ModelOptions,
        allow: Callable[[], bool] = lambda: True,
        api_key: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not options.model:
            raise JudgeSetupError("no judge model: set emission.judge.model (BRAID_EMISSION__JUDGE__MODEL)")
        if options.model == CONTENT_JUDGE:
            raise JudgeSetupError(
                f"emission.judge.model cannot be {CONTENT_JUDGE!r}: votes with that name are ties by content, nobody's answer"
            )
        if not (api_key or os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")):
            raise JudgeSetupError("no key for the judge's model: set ANTHROPIC_API_KEY")
        _check_url(options.base_url)
        self.name = options.model
        self._options = options
        self._allow = allow
        self._clock = clock
        self._temperature = options.temperature
        self._client = AsyncAnthropic(
            api_key=api_key, base_url=options.base_url or None, max_retries=0, timeout=options.timeout_s
        )

    async def ask(self, prompt: Prompt) -> Answer:
        """The model's answer, after as many calls as it takes."""
        usage: Usage | None = None
        unusable = failed = 0
        while True:
            try:
                body = await self._call(prompt)
                usage = added(usage, self._usage(body))
                return read_message(body, scalar=prompt.scalar)._replace(usage=usage)
            except UnusableAnswerError as error:
                unusable += 1
                if unusable > UNUSABLE_RETRIES:
                    raise JudgeTroubleError("unparseable", str(error), usage) from None
            except _TryLaterError as error:
                failed += 1
                if failed >= ATTEMPTS:
                    raise JudgeTroubleError(error.cause, str(error), usage) from None
                await asyncio.sleep(self._wait(error.after, failed, prompt))
            except JudgeTroubleError as error:
                raise JudgeTroubleError(error.cause, str(error), usage) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _call(self, prompt: Prompt) -> dict[str, Any]:
        """One call; its answer as a JSON object."""
        if not self._allow():
            raise JudgeTroubleError("budget", "the budget of calls per hour is spent")
        temperature = self._temperature
        try:
            async with asyncio.timeout(self._options.timeout_s):
                text = await self._send(prompt, temperature)
        except (TimeoutError, APITimeoutError):
            raise JudgeTroubleError("timeout", f"no answer within {self._options.timeout_s:g} s") from None
        except APIStatusError as error:
            if error.status_code == 400 and not _unpaid(error):
                if temperature is not None:  # some models take no temperature
                    self._temperature = None
                    raise _TryLaterError("refused", _said(error), 0.0) from None
                self._temperature = self._options.temperature  # it was not that
            raise _trouble(error, self._clock()) from None
        except APIConnectionError as error:
            raise _TryLaterError("unknown", f"no connection: {error.__cause__ or error}", None) from None
        except anthropic.AnthropicError as error:
            raise JudgeSetupError(f"the judge's model cannot be asked: {error}") from None
        try:
            return parse_object(text)
        except ValueError as error:
            raise UnusableAnswerError(f"the API's answer is not JSON: {error}") from None

    async def _send(self, prompt: Prompt, temperature: float | None) -> str:
        answer = await self._client.messages.with_raw_response.create(
            model=self._options.model,
            max_tokens=self._options.max_tokens,
            system=prompt.system,
            messages=[{"role": "user", "content": prompt.user}],
            tools=[{"name": TOOL, "description": "Give your judgement.", "input_schema": prompt.answer_schema}],
            tool_choice={"type": "tool", "name": TOOL, "disable_parallel_tool_use": True},
            extra_body=None if temperature is None else {"temperature": temperature},
        )
        return await answer.text()

    def _wait(self, after: float | None, failed: int, prompt: Prompt) -> float:
        """How long to wait: as the server says, else longer each time; spread, so that calls do not come back at once."""
        longest = self._options.longest_wait_s
        if after is not None:
            return min(max(0.0, after), longest)
        spread = 1.0 - int(prompt.hash[:2], 16) / 1024
        return min(FIRST_WAIT_S * 2.0 ** (failed - 1), longest) * spread

    def _usage(self, body: dict[str, Any]) -> Usage | None:
        said = body.get("usage")
        if not isinstance(said, dict):
            return None
        plain, cache_made = _count(said.get("input_tokens")), _count(said.get("cache_creation_input_tokens"))
        tokens_in = None if plain is None else plain + (cache_made or 0)
        tokens_out, cached = _count(said.get("output_tokens")), _count(said.get("cache_read_input_tokens"))
        price_in, price_out = self._options.usd_per_mtok_in, self._options.usd_per_mtok_out
        usd = None
        if tokens_in is not None and tokens_out is not None and price_in is not None and price_out is not None:
            usd = (tokens_in * price_in + tokens_out * price_out) / 1e6
        return Usage(input_tokens=tokens_in, output_tokens=tokens_out, cached_tokens=cached, usd=usd)


class _TryLaterError(Exception):
    """The service is busy or away."""

    def __init__(self, cause: MissingCause, why: str, after: float | None) -> None:
        super().__init__(why)
        self.cause = cause
        self.after = after


def read_message(body: dict[str, Any], *, scalar: bool) -> Answer:
    """The answer in a message of the API."""
    if body.get("stop_reason") == "refusal":
        raise JudgeTroubleError("refused", "the model refused to judge")
    content = body.get("content")
    parts = content if isinstance(content, list) else []
    calls = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_use"]
    if len(calls) != 1 or calls[0].get("name") != TOOL:
        raise UnusableAnswerError(
            f"expected one call of {TOOL}, found {len(calls)}; it stopped at {body.get('stop_reason')}"
        )
    return read_value(calls[0].get("input"), scalar=scalar)


def _trouble(error: APIStatusError, now: float) -> Exception:
    """What a status means."""
    status = error.status_code
    after = seconds_until(error.response.headers.get("retry-after"), now)
    if status == 429:
        return _TryLaterError("rate_limited", _said(error), after)
    if status >= 500:
        return _TryLaterError("http_5xx", _said(error), after)
    if status == 408:
        return JudgeTroubleError("timeout", _said(error))
    if status in SETUP_STATUSES or _unpaid(error):
        return JudgeSetupError(f"the judge's model cannot be asked: {_said(error)}")
    return JudgeTroubleError("refused", _said(error))


def _said(error: APIStatusError) -> str:
    """The status and the service's own words: without its number for the call, the same trouble has the same text."""
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    words = inner.get("message") if isinstance(inner, dict) else None
    return f"HTTP {error.status_code}: {words if isinstance(words, str) and words else error.message}"


def _unpaid(error: APIStatusError) -> bool:
    """Whether a call was refused because of who pays for it: nothing about the question would change that."""
    return error.status_code == 400 and UNPAID.search(error.message) is not None


def _check_url(given: str) -> None:
    """Raises JudgeSetupError for an address that no call can reach. What may be a password in it is not shown."""
    name, url = "judge.base_url (BRAID_JUDGE__BASE_URL)", given
    if not given:
        name, url = "ANTHROPIC_BASE_URL", os.environ.get("ANTHROPIC_BASE_URL", "")
    try:
        parts = urlsplit(url)
        usable = not url or (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0)
    except ValueError:  # a port that is no number, brackets that do not close
        usable = False
    if not usable:
        raise JudgeSetupError(
            f"{name} is no URL of a service: {url.rpartition('@')[2]!r}; give http://... or https://..."
        )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
