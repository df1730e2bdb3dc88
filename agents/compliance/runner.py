"""Runs tasks in their modes: the modes of a seed share a draft, then retry or repair it. Every round is written to the
log.

A branch is one run: one sample in one mode. Its rounds are its events. Each round is completely on the log before
the next begins. A killed runner resumes after the last round, and pays at most for the round in flight again. A
provider failure ends a branch as infra_error: its result is unknown, never a failure.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from agents.compliance.edits import with_part
from agents.compliance.prompts import part_prompt, region_prompt, retry_prompt
from agents.compliance.repair_plan import RepairPlan, Step
from agents.compliance.script_adapter import Place
from agents.compliance.task_file import Task
from agents.compliance.verification import TextVerdict, Verifier
from agents.fork.chat_log import ChatLog, read_message
from agents.fork.history import Attempt, History, Job
from agents.fork.log import Log
from agents.fork.recorder import Clock, Recorder
from agents.fork.retry import wait_s
from agents.models.conversation import Message
from agents.models.model import Model, ModelRequest, ModelResponse, SamplingParameters, TokenUsage
from agents.models.model_error import ModelError
from schemas.compliance import COMPLIANCE, COMPLIANCE_ATTEMPT, ComplianceMode
from schemas.events import AgentEvent, AgentInfo, BranchInfo, EndStatus
from schemas.jsontext import compact, parse_object
from schemas.lifecycle import Lifecycle, RolloutOpened

AGENT: Final = AgentInfo(name="braid-comply", version="1")

MOST_FAILURES: Final = 4
"""Failed calls of one round after which the branch is given up."""

MOST_ANSWER: Final = 400_000
"""Maximum bytes of an answer as JSON. All rounds of a branch share one record, and a service that sends more ignores
max_tokens."""

ModelFor = Callable[[Place], Model]
Sleep = Callable[[float], Awaitable[None]]


class RunOptions(NamedTuple):
    """The options that apply to every task."""

    temperature: float = 0.2
    max_tokens: int = 512
    retries: int = 3
    rounds: int = 3
    repair_soft: bool = False
    max_repair_tokens: int | None = None
    timeout_s: float = 300.0


class Sample(NamedTuple):
    """One branch to run."""

    mode: ComplianceMode
    seed: int | None


class PlannedRollout(NamedTuple):
    """A rollout to run, with its branches."""

    opened: RolloutOpened
    task: Task
    samples: tuple[Sample, ...]


def planned_rollouts(
    run: str, tasks: Sequence[Task], modes: Sequence[ComplianceMode], seeds: Sequence[int]
) -> list[PlannedRollout]:
    """Return the rollouts of a run: one per (task, seed) for several modes, else one per task with a branch per seed."""
    planned = []
    for task in tasks:
        if len(modes) > 1:
            for seed in seeds:
                samples = tuple(Sample(mode, seed) for mode in modes)
                planned.append(_planned(run, task, f"/s{seed}", samples))
        else:
            planned.append(_planned(run, task, "", tuple(Sample(modes[0], seed) for seed in seeds)))
    return planned


def _planned(run: str, task: Task, suffix: str, samples: tuple[Sample, ...]) -> PlannedRollout:
    opened = RolloutOpened(
        rollout_id=f"{run}/{task.id}{suffix}",
        task=task.prompt,
        branches=len(samples),
        required=(COMPLIANCE,),
        labels={"run": run, "task_id": task.id, "modes": ",".join(dict.fromkeys(each.mode for each in samples))},
        spec=task.spec.text(),
    )
    return PlannedRollout(opened, task, samples)


class BranchDone(NamedTuple):
    """A branch that has ended."""

    rollout_id: str
    branch_index: int
    sample: Sample
    status: EndStatus
    rounds: int
    passed: bool | None
    """The runner's own result; a verifier decides."""
    error: str | None = None
    exhausted: bool = False
    """Whether retries or repairs ended without a pass."""


class _Exchange(NamedTuple):
    """One call with its response or error."""

    request: ModelRequest
    outcome: ModelResponse | ModelError


class _GivenUpError(Exception):
    """The provider returned no answer."""


class _ResumedRecorder(Recorder):
    """A recorder that skips the events that are already on the log."""

    def __init__(self, log: Log, place: tuple[str, int, int], info: BranchInfo, clock: Clock, known: int) -> None:
        super().__init__(log, *place, info, clock)
        self._skip = known
        if known:
            self.written, self._info = known, None

    def take(self, event: AgentEvent) -> None:
        """Record an event, unless it is already on the log."""
        if self._skip:
            self._skip -= 1
        else:
            super().take(event)


class ComplianceRunner:
    """Runs planned rollouts against one log."""

    def __init__(
        self, log: Log, model_for: ModelFor, options: RunOptions, clock: Clock, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._log = log
        self._model_for = model_for
        self._options = options
        self._clock = clock
        self._sleep = sleep

    async def run(self, planned: PlannedRollout, history: History, done: Callable[[BranchDone], None]) -> None:
        """Run the unfinished branches of a rollout. Its opening is written to the log first."""
        if history.opened is None:
            await self._log.append(Lifecycle(opened=planned.opened))
        drafts: dict[int | None, list[_Exchange]] = {}
        for index, sample in enumerate(planned.samples):
            tried = {job: each for job, each in history.attempts.items() if job.branch_index == index}
            if any(each.ended for each in tried.values()):
                continue
            job, known = _resumable(tried, index)
            recorded = _responses(known)
            if recorded and sample.seed not in drafts:
                drafts[sample.seed] = [
                    _Exchange(self._request(planned, sample, planned.task.prompt), each)
                    for each in _first_round(recorded)
                ]
            branch = _Branch(self, planned, index, sample, job.attempt, known, recorded)
            if sample.seed not in drafts:
                drafts[sample.seed] = _known_draft(self, planned, history, sample) or await self._ask_draft(
                    planned, sample
                )
            done(await branch.run(drafts[sample.seed]))

    def _request(
        self, planned: PlannedRollout, sample: Sample, prompt: str, max_tokens: int | None = None
    ) -> ModelRequest:
        model = self._model_for(Place(planned.task.id, sample.seed, sample.mode, 0))
        sampling = SamplingParameters(
            temperature=self._options.temperature,
            seed=sample.seed if model.takes_seed else None,
            max_tokens=max_tokens or self._options.max_tokens,
        )
        return ModelRequest(
            model.name, (Message("user", prompt),), sampling=sampling, timeout_s=self._options.timeout_s, stream=False
        )

    async def _ask_draft(self, planned: PlannedRollout, sample: Sample) -> list[_Exchange]:
        """Request the draft that all modes of a seed share."""
        exchanges: list[_Exchange] = []
        await self.ask(planned, sample, planned.task.prompt, 0, exchanges)
        return exchanges

    async def ask(
        self,
        planned: PlannedRollout,
        sample: Sample,
        prompt: str,
        number: int,
        exchanges: list[_Exchange],
        max_tokens: int | None = None,
    ) -> None:
        """Call the model until it responds or a retry is of no use. Every call is added to `exchanges`."""
        request = self._request(planned, sample, prompt, max_tokens)
        model = self._model_for(Place(planned.task.id, sample.seed, sample.mode, number))
        for failures in range(1, MOST_FAILURES + 1):
            try:
                exchanges.append(_Exchange(request, _of_usual_size(await model.call(request))))
                return  # noqa: TRY300 - the call is what may fail
            except ModelError as error:
                exchanges.append(_Exchange(request, error))
                if not error.retry or failures == MOST_FAILURES:
                    return
                await self._sleep(wait_s(failures, error.retry_after_s, planned.opened.rollout_id))


def _of_usual_size(response: ModelResponse) -> ModelResponse:
    message = response.message
    size = len(
        compact([message.text, message.reasoning, *(each.arguments for each in message.tool_calls)]).encode(
            "utf-8", "surrogatepass"
        )
    )
    if size > MOST_ANSWER:
        raise ModelError(
            "too_large", f"an answer of {size:,} bytes; at most {MOST_ANSWER:,} are taken: lower --max-tokens"
        )
    return response


class _Branch:
    """A running branch."""

    def __init__(
        self, runner: ComplianceRunner, planned: PlannedRollout, index: int, sample: Sample, attempt: int,
        known: Sequence[AgentEvent], recorded: list[ModelResponse | ModelError],
    ) -> None:  # fmt: skip
        self._runner = runner
        self._planned = planned
        self._index = index
        self._sample = sample
        self._recorded = recorded[len(_first_round(recorded)) :]
        """Recorded outcomes of calls after the draft that are not yet replayed."""
        model = runner._model_for(Place(planned.task.id, sample.seed, sample.mode, 0))
        info = BranchInfo(
            temperature=runner._options.temperature,
            seed=sample.seed if model.takes_seed else None,
            agent=AgentInfo(name=AGENT.name, model=model.name, version=AGENT.version),
            observed="raw",
        )
        place = (planned.opened.rollout_id, index, attempt)
        self._recorder = _ResumedRecorder(runner._log, place, info, runner._clock, len(known))
        self._chat = ChatLog(self._recorder, runner._clock)
        self._rounds = 0
        self._spent = 0
        self._calls: list[str] = []
        """Tools that the model called, although none were offered."""

    async def run(self, draft: list[_Exchange]) -> BranchDone:
        """Run the branch to its end."""
        passed: bool | None = None
        try:
            response = self._write(draft)
            verdict = Verifier(self._planned.task.spec).verify(response.message.text, self._calls)
            self._attempt(response.message.text, verdict, strategy="direct", made_by="model", exchanges=draft)
            await self._recorder.flush()
            match self._sample.mode:
                case "direct":
                    text = response.message.text
                case "prompt_retry":
                    text, verdict = await self._retry(response.message.text, verdict)
                case "full_pcl":
                    text, verdict = await self._repair(response.message.text)
        except _GivenUpError as error:
            await self._recorder.end("infra_error", str(error), None)
            return self._done("infra_error", None, str(error))
        passed = None if verdict.status == "unknown" else verdict.status == "pass"
        exhausted = passed is False and self._sample.mode != "direct"
        ending = {"type": "exhausted"} if exhausted else {}
        self._recorder.event("final_answer", {"answer": text, **ending})
        await self._recorder.end("answered", None, None)
        return self._done("answered", passed, exhausted=exhausted)

    def _done(
        self, status: EndStatus, passed: bool | None, error: str | None = None, *, exhausted: bool = False
    ) -> BranchDone:
        rollout_id = self._planned.opened.rollout_id
        return BranchDone(rollout_id, self._index, self._sample, status, self._rounds, passed, error, exhausted)

    # -- rounds --------------------------------------------------------------------------------------------------------

    async def _retry(self, text: str, verdict: TextVerdict) -> tuple[str, TextVerdict]:
        verifier = Verifier(self._planned.task.spec)
        for _ in range(self._runner._options.retries):
            if verdict.status != "fail":
                break
            target = [
                each.constraint.id
                for each in verdict.constraints
                if each.status == "fail" and each.constraint.level == "hard"
            ]
            response, exchanges = await self._ask(retry_prompt(self._planned.task.prompt, verdict))
            text = response.message.text
            verdict = verifier.verify(text, self._calls)
            self._attempt(text, verdict, strategy="retry", made_by="model", exchanges=exchanges, target=target)
            await self._recorder.flush()
        return text, verdict

    async def _repair(self, draft: str) -> tuple[str, TextVerdict]:
        options = self._runner._options
        spec, prompt = self._planned.task.spec, self._planned.task.prompt
        plan = RepairPlan(
            spec, prompt, draft, max_rounds=options.rounds, repair_soft=options.repair_soft, calls=self._calls
        )
        base = 0
        while (step := plan.next_step()) is not None:
            question = _question(plan, step, prompt)
            limit = self._limit(question)
            if limit == 0:
                break
            exchanges: list[_Exchange] = []
            proposal, output, made_by = step.proposal, step.proposal or "", "edit"
            if question is not None:
                response, exchanges = await self._ask(question, limit)
                output, made_by = response.message.text, "model"
                proposal = _applied(plan, step, output)
                self._spent += sum(
                    each.outcome.usage.total for each in exchanges if isinstance(each.outcome, ModelResponse)
                )
            commit = plan.consider(proposal)
            shown = output if proposal is None else proposal
            verdict = commit.verdict or plan.verify(shown)
            self._attempt(
                shown, verdict, strategy=step.strategy, made_by=made_by, exchanges=exchanges,
                target=[step.target.constraint.id], base=base, committed=commit.committed,
                rolled_back=commit.rolled_back, reason=commit.reason,
            )  # fmt: skip
            if commit.committed:
                base = self._rounds - 1
            await self._recorder.flush()
        return plan.text, plan.final()

    def _limit(self, question: str | None) -> int | None:
        """Return the maximum tokens of the next answer: 0 if the budget is spent, None for only the usual limit."""
        options = self._runner._options
        if question is None or options.max_repair_tokens is None:
            return None
        left = options.max_repair_tokens - self._spent - len(question.encode()) // 3
        return max(0, min(left, options.max_tokens))

    async def _ask(self, prompt: str, max_tokens: int | None = None) -> tuple[ModelResponse, list[_Exchange]]:
        """Return the answer to a round's prompt: the recorded one if it exists. Raises _GivenUpError."""
        exchanges: list[_Exchange] = []
        if self._recorded:
            played = _first_round(self._recorded)
            self._recorded = self._recorded[len(played) :]
            request = self._runner._request(self._planned, self._sample, prompt, max_tokens)
            exchanges = [_Exchange(request, each) for each in played]
        else:
            await self._runner.ask(self._planned, self._sample, prompt, self._rounds, exchanges, max_tokens)
        return self._write(exchanges), exchanges

    # -- events --------------------------------------------------------------------------------------------------------

    def _write(self, exchanges: Sequence[_Exchange]) -> ModelResponse:
        """Record calls and return the response of the last one. Raises _GivenUpError if it has none."""
        last: ModelResponse | ModelError | None = None
        for request, last in exchanges:
            call = self._chat.begin(request)
            if isinstance(last, ModelError):
                self._chat.fail(call, last)
            else:
                self._chat.end(call, last)
        if isinstance(last, ModelResponse):
            self._calls += [each.name for each in last.message.tool_calls]
            return last
        raise _GivenUpError(f"{last.kind}: {last}" if last is not None else "no answer")

    def _attempt(
        self, text: str, verdict: TextVerdict, *, strategy: str, made_by: str, exchanges: Sequence[_Exchange],
        target: Sequence[str] = (), base: int | None = None, committed: bool = True, rolled_back: bool = False,
        reason: str | None = None,
    ) -> None:  # fmt: skip
        """Record a round."""
        responses = [each.outcome for each in exchanges if isinstance(each.outcome, ModelResponse)]
        usage = TokenUsage()
        for each in responses:
            usage = usage.plus(each.usage)
        data: dict[str, Any] = {
            "mode": self._sample.mode,
            "round": self._rounds,
            "strategy": strategy,
            "target": list(target),
            "base_round": base if self._rounds else None,
            "output": text,
            "made_by": made_by,
            "committed": committed,
            "rolled_back": rolled_back,
            "reason": reason,
            "status": verdict.status,
            "passed": verdict.status == "pass",
            "violations": verdict.violations(),
            "usage": {
                name: count for name, count in usage._asdict().items() if name != "reasoning" and count is not None
            },
            "latency_ms": sum(each.outcome.latency_ms for each in exchanges),
            "truncated": True if any(each.finish_reason == "max_tokens" for each in responses) else None,
        }
        self._recorder.event(COMPLIANCE_ATTEMPT, {name: value for name, value in data.items() if value is not None})
        self._rounds += 1


def _question(plan: RepairPlan, step: Step, prompt: str) -> str | None:
    """Return the prompt of a round; None if code makes the proposal."""
    if step.proposal is not None:
        return None
    if step.part is not None:
        return part_prompt(prompt, step.part, plan.text)
    if step.strategy == "full":
        return retry_prompt(prompt, plan.verdict)
    region = plan.text if step.region is None else plan.text[slice(*step.region)]
    return region_prompt(prompt, plan.spec, plan.verdict, plan.text, region)


def _applied(plan: RepairPlan, step: Step, written: str) -> str | None:
    """Return the proposal made from a model's answer; None if the answer is of no use."""
    if step.part is not None:
        return with_part(step.part, written, plan.text)
    if step.region is None or not written.strip():
        return written
    return plan.text[: step.region[0]] + written.strip("\n") + plan.text[step.region[1] :]


# -- recorded rounds ---------------------------------------------------------------------------------------------------


def _resumable(tried: dict[Job, Attempt], index: int) -> tuple[Job, list[AgentEvent]]:
    """Return the attempt to resume and its events; a new attempt if the last one does not end with a complete round."""
    if not tried:
        return Job(index, 0), []
    job = max(tried, key=lambda each: each.attempt)
    events = tried[job].events
    known = [events[seq] for seq in sorted(events)]
    whole = sorted(events) == list(range(len(events))) and bool(known) and known[-1].event == COMPLIANCE_ATTEMPT
    return (job, known) if whole else (Job(index, job.attempt + 1), [])


def _responses(events: Sequence[AgentEvent]) -> list[ModelResponse | ModelError]:
    """Return the outcomes of the recorded calls."""
    messages: dict[str, Message] = {}
    found: list[ModelResponse | ModelError] = []
    for event in events:
        data = parse_object(event.data)
        if event.event == "message":
            messages[str(data["id"])] = read_message(data)
        elif event.event == "model_call":
            found.append(_outcome(data, messages))
    return found


def _outcome(data: dict[str, Any], messages: dict[str, Message]) -> ModelResponse | ModelError:
    digest, latency = data.get("request_digest", ""), data.get("latency_ms", 0)
    if "error" in data:
        error = data["error"]
        return ModelError(error["kind"], error["message"], request_digest=digest, latency_ms=latency)
    usage = data.get("usage", {})
    prompt, cached = usage.get("input"), usage.get("cached")
    own = None if prompt is None else prompt - (cached or 0)
    spent = TokenUsage(own, usage.get("output"), cached, usage.get("reasoning"))
    return ModelResponse(
        messages[data["response"]],
        data["model"],
        data["finish_reason"],
        spent,
        request_digest=digest,
        latency_ms=latency,
    )


def _first_round(outcomes: Sequence[ModelResponse | ModelError]) -> list[ModelResponse | ModelError]:
    """Return the calls up to the first response."""
    for number, each in enumerate(outcomes, start=1):
        if isinstance(each, ModelResponse):
            return list(outcomes[:number])
    return list(outcomes)


def _known_draft(
    runner: ComplianceRunner, planned: PlannedRollout, history: History, sample: Sample
) -> list[_Exchange]:
    """Return the draft that another branch of the same seed recorded."""
    for job in sorted(history.attempts):
        if job.branch_index < len(planned.samples) and planned.samples[job.branch_index].seed == sample.seed:
            events = history.attempts[job].events
            found = _first_round(_responses([events[seq] for seq in sorted(events)]))
            if found and isinstance(found[-1], ModelResponse):
                return [_Exchange(runner._request(planned, sample, planned.task.prompt), each) for each in found]
    return []
