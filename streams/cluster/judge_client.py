"""The configured judge, one call to it, and the budget that calls spend."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from agents.judge.answers import Answer
from agents.judge.judge import Judge, JudgeSetupError, JudgeTroubleError
from agents.judge.prompt import prompt_of
from agents.judge.votes import Asked, Call, answered, missing
from agents.models.model_error import ModelSetupError
from agents.models.service import ServiceKind
from schemas.judging import JudgeRequest, JudgeVote
from streams.cluster.config import JudgeWorkerConfig, Settings
from streams.cluster.model_client import open_model

HOUR_S = 3600.0

ASKED_BY_US = frozenset({"scripted", "anthropic", "openai"})
"""Kinds of judges that this package calls; requests for others are left to other programs."""


class Budget:
    """Limits the calls in any hour."""

    def __init__(self, calls_per_hour: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = calls_per_hour
        self._clock = clock
        self._made: deque[float] = deque()
        self.calls = 0
        """Made in all."""

    def remember(self, age_s: float) -> None:
        """Count a call that was made so long ago, before this budget began. The oldest ones come first."""
        self._made.append(self._clock() - age_s)

    @property
    def left(self) -> int:
        """Calls that remain in this hour."""
        now = self._clock()
        while self._made and self._made[0] <= now - HOUR_S:
            self._made.popleft()
        return max(0, self._limit - len(self._made))

    def allow(self) -> bool:
        """Count a call if any remains."""
        if not self.left:
            return False
        self._made.append(self._clock())
        self.calls += 1
        return True


def make_judge(settings: Settings, allow: Callable[[], bool] = lambda: True) -> Judge:
    """The judge that `emission.judge` names. Raises JudgeSetupError if the judge cannot be called."""
    chosen, asked = settings.emission.judge, settings.judge
    if chosen.kind == "scripted":
        from agents.judge.scripted_judge_adapter import ScriptedJudge, read_rules

        if asked.rules is None:
            raise JudgeSetupError("a scripted judge needs a rule file: set judge.rules (BRAID_JUDGE__RULES)")
        return ScriptedJudge(read_rules(asked.rules), allow)
    if chosen.kind in ("anthropic", "openai"):
        return _model_judge(chosen.kind, chosen.model, asked, allow)
    raise JudgeSetupError(
        f"emission.judge.kind is {chosen.kind}, so there is no judge to ask; set BRAID_EMISSION__JUDGE__KIND to "
        "scripted, anthropic or openai, here and for `braid worker`"
    )


def _model_judge(kind: ServiceKind, model: str, asked: JudgeWorkerConfig, allow: Callable[[], bool]) -> Judge:
    from agents.judge.model_judge import JudgeOptions, ModelJudge

    if not model:
        raise JudgeSetupError("no judge model: set emission.judge.model (BRAID_EMISSION__JUDGE__MODEL)")
    options = JudgeOptions(
        timeout_s=asked.timeout_s,
        max_tokens=asked.max_tokens,
        longest_wait_s=asked.longest_wait_s,
        usd_per_mtok_in=asked.usd_per_mtok_in,
        usd_per_mtok_out=asked.usd_per_mtok_out,
    )
    try:
        return ModelJudge(open_model(kind, model, asked.service()), options, asyncio.sleep, allow)
    except ModelSetupError as error:
        raise JudgeSetupError(f"the judge cannot be asked: {error}") from None


async def ask(
    judge: Judge, request: JudgeRequest, call: Call, say: Callable[[JudgeTroubleError], None] = lambda _: None
) -> JudgeVote:
    """One call, as a vote: the answer, or why there is none; `say` is called with the whole error."""
    prompt = prompt_of(request, call)
    began = time.monotonic()
    answer: Answer | None = None
    trouble: JudgeTroubleError | None = None
    try:
        answer = await judge.ask(prompt)
    except JudgeTroubleError as error:
        trouble = error
        say(error)
    usage = answer.usage if answer is not None else trouble.usage if trouble is not None else None
    asked = Asked(call, judge.name, prompt.hash, usage, round((time.monotonic() - began) * 1000))
    if answer is not None:
        return answered(request, asked, answer)
    assert trouble is not None
    return missing(request, asked, trouble.cause)
