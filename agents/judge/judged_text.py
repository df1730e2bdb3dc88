"""The text of a branch that a judge sees: its answer, its summarized calls, its verdicts. No ids, no model, no branch
number.

The first messages that all compared branches share are taken out of each and kept once. Any text that an agent could
have influenced is quoted line by line: it cannot add a call or a verdict of its own. Everything is redacted first and
truncated afterwards; the head of a text (the answer) and its tail (the verdicts) are kept. The same records give the
same bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import zip_longest
from typing import NamedTuple

from agents.redaction.redaction import redact
from agents.summarize.output import summarize
from agents.training.messages import conversation, given_messages
from agents.verdicts.meaning import Terms, Verdict, kind_of, meaning
from schemas.branches import BranchRecord
from schemas.judging import JudgedBranch
from schemas.lifecycle import RolloutOpened
from schemas.training import Message
from schemas.verdicts import BuildVerdict, OutputTail, VisualVerdict

MANY_LINES = 1000
"""Texts are truncated by bytes; more lines never fit."""

TAIL_BYTES = 600
"""Of the output of a build or test run."""

MARK = "> "
"""Before every line of an agent's text, its input, or a program's output. Headings, calls and verdicts do not have
it.
"""

LISTED = 10
"""Errors and probes of a page."""


class Branch(NamedTuple):
    """A branch with its verdicts."""

    record: BranchRecord
    verdicts: Sequence[Verdict]


class JudgedTexts(NamedTuple):
    """All branches of a rollout that are compared."""

    shared_prefix: str
    """The text that all of them begin with."""
    branches: dict[int, JudgedBranch]


def judged_texts(
    branches: Mapping[int, Branch], opened: RolloutOpened | None, max_bytes: int, terms: Terms
) -> JudgedTexts:
    """The texts of the branches to compare; none is longer than `max_bytes` of UTF-8."""
    talks = {
        index: conversation(branch.record, given_messages(branch.record.task, opened))
        for index, branch in branches.items()
    }
    shared = shared_by_all([talk.messages for talk in talks.values()]) if len(talks) > 1 else 0
    given = next((len(talk.prompt) for talk in talks.values()), 0)
    # The task has a block of its own in the prompt; a branch always contains its own actions.
    first = [message for talk in list(talks.values())[:1] for message in talk.messages[: max(shared, given)]]
    prefix = "\n\n".join(_said(message) for message in first if message.role != "user")
    judged = {}
    for index, branch in branches.items():
        did = list(talks[index].messages[max(shared, given) :])
        if did and did[-1].role == "assistant" and not did[-1].tool_calls:
            did.pop()  # the answer, which comes first
        judged[index] = judged_branch(index, _text(branch, did, max_bytes, terms), max_bytes)
    return JudgedTexts(fitting(prefix, max_bytes), judged)


def judged_branch(index: int, text: str, max_bytes: int) -> JudgedBranch:
    """A text as a judge may see it: redacted, cut, with its digest."""
    cut = fitting(text, max_bytes)
    return JudgedBranch(branch_index=index, text=cut, digest=sha256(cut.encode()).hexdigest())


def fitting(text: str, max_bytes: int) -> str:
    """The text without secrets, truncated to `max_bytes`: head and tail are kept."""
    return summarize(redact(text).text, max_bytes, MANY_LINES, MANY_LINES) or ""


def shared_by_all(talks: Sequence[Sequence[Message]]) -> int:
    """How many messages are equal at the start of all conversations, reduced so that it ends just before a message of
    the agent.
    """
    shared = 0
    for level in zip_longest(*talks):
        if any(message is None or message != level[0] for message in level):
            break
        shared += 1
    longest = max(talks, key=len, default=())
    while shared > 0 and not (shared < len(longest) and longest[shared].role == "assistant"):
        shared -= 1
    return shared


def _text(branch: Branch, did: Sequence[Message], max_bytes: int, terms: Terms) -> str:
    record = branch.record
    parts = ["FINAL ANSWER", _answer(record, max_bytes // 2), "", "WORK"]
    parts += [_said(message) for message in did] or ["(no tool calls)"]
    parts += ["", "VERDICTS"]
    parts += [_verdict(verdict, terms) for verdict in sorted(branch.verdicts, key=kind_of)] or ["(none)"]
    return "\n".join(parts)


def _answer(record: BranchRecord, max_bytes: int) -> str:
    if record.final_answer:
        # A long answer must not push all evidence out of the text.
        return quoted(fitting(record.final_answer, max_bytes))
    ended = f"(no answer; the run ended as {record.status})"
    return f"{ended}\n{quoted(fitting(record.error, max_bytes))}" if record.error else ended


def _said(message: Message) -> str:
    if message.role == "system":
        return f"[instructions to the agent]\n{quoted(message.content or '')}"
    if message.role == "tool":
        return f"[result of {_line(message.name or '')}]\n{quoted(message.content or '')}"
    lines = [quoted(message.content)] if message.content else []
    for call in message.tool_calls or ():
        lines += [f"[call {_line(call.function.name)}]", quoted(call.function.arguments)]
    return "\n".join(lines)


def quoted(text: str) -> str:
    """Foreign text, without its secrets: every line behind a mark, so that none can look like one of ours."""
    return "\n".join(f"{MARK}{line}" for line in redact(text).text.splitlines() or [""])


def _line(text: str) -> str:
    """A name or a reason on one line."""
    return " ".join(fitting(text, TAIL_BYTES).split())


def _verdict(verdict: Verdict, terms: Terms) -> str:
    found = meaning(verdict, terms)
    details = [detail for detail in _details(verdict) if detail] + [f"odd: {flag}" for flag in found.flags]
    line = f"{_line(kind_of(verdict))}: {found.outcome}"
    if details:
        line += f" ({'; '.join(details)})"
    if isinstance(verdict, BuildVerdict):
        line += "".join(_tail(name, tail) for name, tail in (("stdout", verdict.stdout), ("stderr", verdict.stderr)))
    return line


def _details(verdict: Verdict) -> list[str]:
    if isinstance(verdict, BuildVerdict):
        tests = verdict.tests
        return [
            f"stage {verdict.stage}" if verdict.stage else "",
            "" if verdict.exit_code is None else f"exit code {verdict.exit_code}",
            "" if tests is None else f"{tests.passed} of {tests.total} tests passed, {tests.failed} failed",
            "" if verdict.coverage is None else f"coverage {verdict.coverage:.0%}",
            "protected files were changed" if verdict.protected_paths_intact is False else "",
        ]
    if isinstance(verdict, VisualVerdict):
        return [
            _line(verdict.reason or ""),
            *_each("uncaught error", verdict.uncaught_errors),
            *_each("console error", verdict.console_errors),
            *_each("failed probe", (probe.name for probe in verdict.dom_probes if not probe.ok)),
        ]
    return ["" if verdict.score is None else f"score {verdict.score:g}", _line(verdict.hint or "")]


def _each(what: str, texts: Iterable[str]) -> list[str]:
    return [f"{what}: {_line(text)}" for text in list(texts)[:LISTED]]


def _tail(name: str, tail: OutputTail | None) -> str:
    return f"\n[end of {name}]\n{quoted(fitting(tail.text, TAIL_BYTES))}" if tail is not None and tail.text else ""
