"""Hack signals: in words, at their turn, and as sure as their records say."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from schemas.judging import JudgeVote
from schemas.rankings import RankedBranch
from streams.views.branch_status import BranchStanding
from streams.views.vote_table import tally
from streams.views.web.braid_svg import Zoom, braid
from streams.views.web.links import Links
from streams.views.web.sight import Sight
from streams.views.web.signals import Signal, flag_words, rule_words, signals_of
from streams.views.web.strands import Strand
from streams.views.web.votes_part import votes_part
from tests.streams.views.web.test_turns import call, made, result

TOLD = made(
    ("text", "run_start", {"task": "Mend it"}),
    call("read_file", "a", 0, path="x.py"),
    result("a", output="x"),
    call("write_file", "b", 1, path="/work/tests/conftest.py"),
    result("b", output="ok"),
    ("text", "final_answer", {"answer": "done"}),
)


def signal(**fields: Any) -> dict[str, Any]:
    return {"rule": "T5.harness_hook", "class": "confirmed", "source": "experiment", "evidence": "a hook", **fields}


def ranked(*signals: dict[str, Any], flags: tuple[str, ...] = ()) -> RankedBranch:
    """A ranked branch, as far as signals are concerned."""
    return cast("RankedBranch", SimpleNamespace(signals=signals, flags=flags))


@pytest.mark.parametrize(
    ("fields", "turn"),
    [
        ({"turn": 1}, 1),
        ({"turn": 9}, None),
        ({"path": "tests/conftest.py"}, 1),  # the call writes this file, wherever its workspace lies
        ({"path": "./x.py"}, None),  # it was only read
        ({"seq": 3, "turn": 1}, 1),
        ({}, None),
    ],
)
def test_a_signal_stands_at_the_turn_that_shows_it(fields: dict[str, Any], turn: int | None) -> None:
    (found,) = signals_of(ranked(signal(**fields)), (), TOLD)
    assert found.turn == turn


def test_an_event_leads_to_its_turn() -> None:
    """Of slices with one turn each, the number of an event is enough."""
    from agents.summarize.event_reader import keep_slice
    from schemas.events import EventFields
    from schemas.jsontext import compact
    from streams.views.web.turn_writer import transcript_of

    told = [[call("run", f"c{turn}", turn, command="x"), result(f"c{turn}", output="y")] for turn in range(4)]
    pieces = []
    for number, events in enumerate(told):
        fields = tuple(EventFields("", None, channel, kind, compact(data), 1) for channel, kind, data in events)
        pieces.append(keep_slice(fields, 2 * number, 0, redacting=True))
    transcript = transcript_of(pieces)
    assert [each.seqs for each in transcript.turns] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    (found,) = signals_of(ranked(signal(seq=5)), (), transcript)
    assert found.turn == 2


def test_a_signal_is_as_sure_as_its_record_says() -> None:
    given = [
        signal(rule=f"T{number}.x", **{"class": sure})
        for number, sure in enumerate(("confirmed", "suspected", "judged"), 1)
    ]
    assert [each.sure for each in signals_of(ranked(*given), (), TOLD)] == ["confirmed", "suspected", "judged"]


def test_flags_of_signals_that_have_places_are_not_told_twice() -> None:
    flags = ("hack_confirmed:T5.harness_hook", "hack_suspected:T16.claims", "weak_verdict")
    found = signals_of(ranked(signal(), flags=flags), (), TOLD)
    assert [(each.rule, each.sure) for each in found] == [("T5.harness_hook", "confirmed"), ("T16.claims", "suspected")]


def test_rules_are_told_in_words() -> None:
    assert rule_words("T5.harness_hook").startswith("a hook of the test runner")
    assert rule_words("L.canary") == "a test that has to fail did not fail"
    assert rule_words("protected_paths_changed").startswith("files that the task protects")
    assert rule_words("new_rule") == "new rule"
    assert flag_words("hack_confirmed:T7.equality") == "hack confirmed: equality ignores its argument (T7.equality)"
    assert flag_words("inconsistent_build") == "inconsistent build"


def strand(branch: int, *signals: Signal) -> Strand:
    standing = BranchStanding(branch, 0, 1, "answered", 6, 0, 2, "done", "pass")
    return Strand(standing, None, TOLD, (), signals)


def test_the_braid_marks_the_turn_of_a_signal_on_a_line_that_branches_share() -> None:
    """Of two branches that did the same, one is flagged: the mark is on their common line, and says whose it is."""
    flagged = Signal("T5.harness_hook", 1, "a hook", "experiment", "confirmed", "tests/conftest.py", 3)
    for place in range(2):
        strands = [strand(0), strand(1)]
        strands[place] = strand(place, flagged)
        drawn = braid(strands, "r", Links(), Zoom())
        assert f"branch {place}, turn 1: a hook of the test runner" in drawn
        assert drawn.count('class="mark signal"') == 2  # at its turn, and beside the outcome
        strands[place] = strand(place, flagged._replace(sure="suspected"))
        assert braid(strands, "r", Links(), Zoom()).count('class="mark signal hollow"') == 2


def test_votes_of_many_branches_are_a_map_of_squares() -> None:
    """Twenty branches: a square for each side of each pair, in the order of the ranking; the pair that flips is marked."""
    votes = [vote(a, a + 1, order, "a") for a in range(19) for order in ("ab", "ba")]
    votes += [vote(0, 19, "ab", "a"), vote(0, 19, "ba", "b")]
    counted = tally(votes)
    strands = [SimpleNamespace(branch=branch) for branch in reversed(range(20))]
    sight = cast("Sight", SimpleNamespace(counted=counted, strands=strands, account=SimpleNamespace(votes=votes)))
    shown = votes_part(sight)
    assert shown.count("<rect") == 2 * 20 + 4  # and four in the legend
    assert [shown.count(f'class="{kind}"') for kind in ("won", "lost", "flip")] == [19 + 1, 19 + 1, 2 + 1]
    assert "19 over 18: 0+0" in shown
    assert "1 vote changed when the order was swapped" in shown


def vote(a: int, b: int, order: str, preferred: str) -> JudgeVote:
    return JudgeVote(
        rollout_id="r", vote_id=f"{a} {b} {order}", a=a, b=b, order=order, sample=0, preferred=preferred, judge="m"
    )  # type: ignore[arg-type]
