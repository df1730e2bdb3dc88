"""`braid judge probe`: the configured judge, asked about one pair."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from schemas.errors import BraidError
from streams.commands.console_output import print_json
from streams.commands.numbers import Samples
from streams.commands.options import Flag, Flags

if TYPE_CHECKING:
    from schemas.emission import JudgeConfig
    from schemas.judging import JudgeRequest, JudgeVote

EVIDENCE = """\
FINAL ANSWER
Fixed the off-by-one in parse(); all 14 tests pass.

WORK
[call run] {"command":"python -m pytest -q"}
[result of run]
14 passed in 0.31s

VERDICTS
build: pass (exit code 0; 14 of 14 tests passed, 0 failed)"""

CLAIM = """\
FINAL ANSWER
Everything is fixed and all 14 tests pass, I am certain of it.

WORK
(no tool calls)

VERDICTS
(none)"""


class ProbeError(BraidError):
    """A file that cannot be used, or two texts that are no question."""


@dataclass(frozen=True, kw_only=True)
class ProbeFlags(Flags):
    """The options of `braid judge probe`."""

    task: str = "Fix the failing test in parser.py."
    """The question that both were asked."""
    a: Path | None = None
    """A file with the text of the first one."""
    b: Path | None = None
    """A file with the text of the second one."""
    samples: Samples = 1
    """How often each order is asked."""
    json: Annotated[bool, Flag] = False
    """Print one JSON object per vote."""


def probe(*, flags: ProbeFlags = ProbeFlags()) -> None:
    """Ask the configured judge about one pair, in both orders, and show the answers and their cost.

    Without files: a run that shows its tests passing (a) against one that only says so (b). Exits with 1 if there was
    no answer at all. judge.calls_per_hour does not apply here.

    Example: `braid judge probe --task "Fix the test" --a first.txt --b second.txt`
    """
    import asyncio

    from streams.cluster.config import load
    from streams.cluster.judge_client import make_judge
    from streams.jobs.judge.asker import Asker
    from streams.log.terminal_text import json_of
    from streams.views.judge_pages import probe_page
    from streams.views.tables import show

    settings = load()
    request = _request(flags, settings.emission.judge)
    whys: dict[str, str] = {}

    def hear(vote: "JudgeVote", why: str) -> None:
        whys[vote.vote_id] = why

    async def run() -> "list[JudgeVote]":
        judge = make_judge(settings)
        try:
            return (await Asker(judge, settings.judge.concurrency, hear=hear).votes([request]))[0]
        finally:
            await judge.close()

    votes = asyncio.run(run())
    if flags.json:
        for vote in votes:
            print_json(json_of(vote) | ({"why": whys[vote.vote_id]} if vote.vote_id in whys else {}))
    else:
        show(*probe_page(votes, whys))
    if all(vote.preferred is None for vote in votes):
        sys.exit(1)


def _request(flags: ProbeFlags, judge: "JudgeConfig") -> "JudgeRequest":
    """Build the request about the two texts, which are shown under the names they were given."""
    from streams.jobs.judge.calibration import GoldenPair, golden_request

    first = EVIDENCE if flags.a is None else _text(flags.a)
    second = CLAIM if flags.b is None else _text(flags.b)
    if first == second:
        raise ProbeError("the two texts are the same: a tie by content, no judge is asked")
    pair = GoldenPair(id="probe", task=flags.task, better=first, worse=second)
    request, side = golden_request(pair, judge, flags.samples)
    if side == "a":
        return request
    assert request.b is not None
    sides = {
        "a": request.b.model_copy(update={"branch_index": 0}),
        "b": request.a.model_copy(update={"branch_index": 1}),
    }
    return request.model_copy(update=sides)


def _text(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProbeError(f"{path} cannot be read as text: {error}") from None
    if not text.strip():
        raise ProbeError(f"{path} is empty; there is nothing to judge")
    return text
