"""All criteria of a task, run on a branch's files: verdicts with a hint each, and one for all together."""

from collections.abc import Sequence
from hashlib import sha256

from agents.criteria.checks import PASSED, Checked, check_files, readable, together
from agents.criteria.criterion import ALL_TOGETHER, Command, Criterion, FileMatches, LlmJudge
from agents.fork.layout import laid_out
from agents.fork.sandbox import Ended, Limits, Sandbox, SandboxError
from agents.fork.subject import Subject
from agents.fork.task import Task
from agents.importers.records import make
from agents.judge.judge import Judge, JudgeTroubleError
from agents.judge.judged_text import judged_branch
from agents.judge.prompt import prompt_of
from agents.judge.votes import calls_of
from agents.redaction.redaction import redact
from agents.workspace.files import FileProblemError, Files
from schemas.judging import HIGHEST_SCORE, JudgeRequest
from schemas.numbers import nine
from schemas.verdicts import CheckVerdict

SEARCH_S = 10.0
"""Time limit of one search for a regular expression, in seconds."""

NO_MATCH = 33
"""The exit code of a search that found nothing: a value that no missing or killed interpreter gives."""

SEARCH = (
    "import re, sys; found = re.search(sys.argv[1], open(sys.argv[2], encoding='utf-8', newline='').read()); "
    f"sys.exit(0 if found else {NO_MATCH})"
)

JUDGED_BYTES = 8000


async def check_verdicts(
    task: Task,
    files: Files,
    sandbox: Sandbox,
    judge: Judge | None,
    subject: Subject,
) -> list[CheckVerdict]:
    """Run a task's criteria; `sandbox` is empty and used by no other caller. Without criteria there are no verdicts."""
    criteria = task.braid.criteria
    if not criteria:
        return []
    outcomes = await run_criteria(criteria, task, files, sandbox, judge)
    named = [(each.name, each.hint, outcome) for each, outcome in zip(criteria, outcomes, strict=True)]
    return [
        make(
            CheckVerdict,
            subject.said(check_kind(name))
            | {
                "name": name,
                "status": outcome.status,
                "score": outcome.score,
                "hint": None if outcome.status == "pass" else ": ".join(part for part in (hint, outcome.hint) if part),
            },
        )
        for name, hint, outcome in [*named, (ALL_TOGETHER, "", together(outcomes))]
    ]


def check_kind(name: str) -> str:
    """The input of the digest that is the id of a check's verdict."""
    return f"check:{name}"


async def run_criteria(
    criteria: Sequence[Criterion], task: Task, files: Files, sandbox: Sandbox, judge: Judge | None
) -> list[Checked]:
    """The outcomes, in the order of the criteria. Each command finds the files as the agent left them."""
    outcomes, used = [], False
    for criterion in criteria:
        if isinstance(criterion, Command | FileMatches):
            try:
                if used:
                    await sandbox.reset()
                used = True
                await sandbox.put(laid_out(task, files))
                outcomes.append(await _in_sandbox(criterion, files, sandbox))
            except (SandboxError, FileProblemError) as error:
                outcomes.append(Checked("unknown", f"sandbox: {error}"))
        elif isinstance(criterion, LlmJudge):
            outcomes.append(await _judged(criterion, task, files, judge))
        else:
            outcomes.append(check_files(criterion, files))
    return outcomes


async def _in_sandbox(criterion: Command | FileMatches, files: Files, sandbox: Sandbox) -> Checked:
    if isinstance(criterion, Command):
        command, wanted, seconds = criterion.command, criterion.exit_code, criterion.timeout_s
    else:
        file = files.get(criterion.path)
        if file is None or file.link or readable(file.content) is None:
            return Checked("fail", f"{criterion.path} is not there, or not UTF-8 text")
        command, wanted, seconds = ("python3", "-I", "-c", SEARCH, criterion.pattern, criterion.path), 0, SEARCH_S
    done = await sandbox.run(command, Limits(timeout_s=seconds, cpu_s=int(seconds) + 1))
    if done.ended is Ended.TIMEOUT:
        return Checked("unknown", f"did not end within {seconds:g} s")
    if done.exit_code == wanted:
        return PASSED
    said = done.stderr.text.strip()[-200:]
    return (
        searched(criterion, done.exit_code, said)
        if isinstance(criterion, FileMatches)
        else Checked("fail", f"exit code {done.exit_code} instead of {wanted}: {said}")
    )


def searched(criterion: FileMatches, exit_code: int | None, said: str) -> Checked:
    """A search that did not succeed: no finding, or the check could not run."""
    if exit_code == NO_MATCH:
        return Checked("fail", f"{criterion.path} has nothing that matches {criterion.pattern!r}")
    return Checked("unknown", f"the search ended with exit code {exit_code}: {said}")


async def _judged(criterion: LlmJudge, task: Task, files: Files, judge: Judge | None) -> Checked:
    if judge is None:
        return Checked("unknown", "there is no judge: set emission.judge.kind (BRAID_EMISSION__JUDGE__KIND)")
    file = files.get(criterion.path)
    text = None if file is None or file.link else readable(file.content)
    if text is None:
        return Checked("fail", f"{criterion.path} is not there, or not UTF-8 text")
    request = judge_request(criterion, task, text)
    scores: list[float] = []
    troubles: list[str] = []
    for call in calls_of(request):
        try:
            answer = await judge.ask(prompt_of(request, call))
        except JudgeTroubleError as trouble:
            troubles.append(trouble.cause)
        else:
            if answer.score is not None:
                scores.append(answer.score)
    if not scores:
        return Checked("unknown", f"the judge gave no score: {', '.join(sorted(set(troubles)))}")
    mean = nine(sum(scores) / len(scores))
    passes = mean >= criterion.score_min
    hint = "" if passes else f"the judge gave {mean:g} of {HIGHEST_SCORE}; it needs {criterion.score_min:g}"
    return Checked("pass" if passes else "fail", hint, nine(mean / HIGHEST_SCORE))


def judge_request(criterion: LlmJudge, task: Task, text: str) -> JudgeRequest:
    """The question to the judge: the file, redacted and cut, as the one thing to be scored."""
    shown = judged_branch(0, f"{criterion.path}\n{redact(text).text}", JUDGED_BYTES)
    return JudgeRequest(
        request_id=shown.digest,
        rollout_id="criterion",
        settled_id="criterion",
        task=task.instruction,
        a=shown,
        samples=criterion.samples,
        rubric=criterion.rubric,
        rubric_hash=sha256(criterion.rubric.encode()).hexdigest(),
    )
