"""`braid rank`: what the ranking must hold, seen from the command line."""

from collections.abc import Callable, Iterable
from itertools import combinations, permutations
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from agents.evidence.keys import generate_key
from streams.cli import app
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from streams.log.input_lines import InputError
from tests.sample.sample_lines import write_sample

Line = dict[str, Any]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rankings(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.out.splitlines()]


Rank = Callable[..., Ran]


@pytest.fixture
def rank(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rank:
    """Run `braid rank` on lines, in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    def run(lines: Iterable[Line | bytes], *flags: str) -> Ran:
        texts = [line if isinstance(line, bytes) else orjson.dumps(line) for line in lines]
        (tmp_path / "lines.ndjson").write_bytes(b"\n".join(texts) + b"\n")
        code = 0
        try:
            app(["rank", "lines.ndjson", *flags], result_action="return_value")
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(code, *capsys.readouterr())

    return run


def opened(branches: int, **more: Any) -> Line:
    return {"type": "rollout", "rollout_id": "r1", "task": "t", "branches": branches, **more}


def build(branch: int, status: str = "success", exit_code: int = 0, **more: Any) -> Line:
    return {
        "type": "build",
        "rollout_id": "r1",
        "branch_index": branch,
        "status": status,
        "exit_code": exit_code,
        **more,
    }


def vote(a: int, b: int, preferred: str | None, order: str = "ab", sample: int = 0, **more: Any) -> Line:
    names = {"rollout_id": "r1", "a": a, "b": b, "order": order, "sample": sample, "preferred": preferred, "judge": "m"}
    return {"type": "vote", **names, **more}


def event(branch: int, kind: str, **data: Any) -> Line:
    return {"type": "event", "rollout_id": "r1", "branch_index": branch, "event": {"event": kind, "data": data}}


def judged(preferred: Callable[[int, int, str], str], branches: int = 4) -> list[Line]:
    """Every pair, asked twice in both orders."""
    return [
        vote(a, b, preferred(a, b, order), order, sample)
        for a, b in combinations(range(branches), 2)
        for order in ("ab", "ba")
        for sample in (0, 1)
    ]


def column(ranking: dict[str, Any], name: str) -> list[Any]:
    return [branch[name] for branch in ranking["branches"]]


def test_a_strict_order_is_ranked_in_that_order(rank: Rank) -> None:
    """a > b > c > d gives a, b, c, d, with falling scores."""
    ran = rank([*judged(lambda _a, _b, _order: "a")], "--json")
    (ranking,) = ran.rankings
    assert ran.code == 0
    assert column(ranking, "branch_index") == [0, 1, 2, 3]
    assert column(ranking, "rank") == [1, 2, 3, 4]
    scores = column(ranking, "bt_score")
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4


def test_the_order_of_lines_and_indexes_does_not_matter(rank: Rank) -> None:
    """A strict order over other indexes is found as well, whatever the order of the lines."""
    for places in list(permutations(range(3)))[1:4]:
        lines = judged(lambda a, b, _order, places=places: "a" if places[a] < places[b] else "b", 3)
        (ranking,) = rank(reversed(lines), "--json").rankings
        assert column(ranking, "branch_index") == sorted(range(3), key=lambda index: places[index])


def test_all_ties_give_equal_scores_and_five(rank: Rank) -> None:
    """A judge that never decides leaves every branch at 5 of 10."""
    (ranking,) = rank(judged(lambda _a, _b, _order: "tie"), "--json").rankings
    assert column(ranking, "bt_score") == [0.0] * 4
    assert column(ranking, "judge_score") == [5.0] * 4
    assert ranking["stats"]["tie_rate"] == 1.0


def test_a_branch_that_wins_everything_has_a_finite_score(rank: Rank) -> None:
    """The penalty keeps a perfect record finite."""
    (ranking,) = rank(judged(lambda a, _b, _order: "a" if a == 0 else "tie"), "--json").rankings
    best = ranking["branches"][0]
    assert best["branch_index"] == 0
    assert 0 < best["bt_score"] < 20
    assert best["se"] > 0


def test_a_judge_that_prefers_what_it_sees_first_decides_nothing(rank: Rank) -> None:
    """Both orders cancel: equal scores, and a position consistency of 0."""
    (ranking,) = rank(judged(lambda _a, _b, order: order[0]), "--json").rankings
    assert column(ranking, "bt_score") == [0.0] * 4
    assert ranking["stats"]["position_consistency"] == 0.0
    assert ranking["stats"]["first_position_rate"] == 1.0


def test_passing_branches_are_above_failing_ones_and_unknown_ones_have_no_rank(rank: Rank) -> None:
    """Votes rank within a tier; what is known of the outcome comes first."""
    lines = [opened(4), build(0, "failure", 1), build(1), build(2), vote(1, 2, "b"), vote(1, 2, "b", "ba")]
    (ranking,) = rank(lines, "--json").rankings
    assert column(ranking, "branch_index") == [2, 1, 0, 3]
    assert column(ranking, "rank") == [1, 2, 3, None]
    assert column(ranking, "objective_status") == ["pass", "pass", "fail", "unknown"]
    assert column(ranking, "objective_score") == [1.0, 1.0, 0.0, None]
    assert (ranking["stats"]["n"], ranking["stats"]["passes"]) == (3, 2)


def test_the_published_numbers_of_ten_branches(rank: Rank) -> None:
    """Ten branches of which five pass: the Wilson interval, and 26.3 points."""
    (ranking,) = rank(
        [opened(10), *(build(index, ("success", "failure")[index % 2], index % 2) for index in range(10))], "--json"
    ).rankings
    stats = ranking["stats"]
    assert (stats["wilson_low"], stats["wilson_high"]) == pytest.approx((0.2365930904, 0.7634069096), abs=2e-9)
    assert stats["min_detectable_delta_pp"] == 26.3
    assert stats["powered"] is True


def test_votes_alone_need_no_verdicts(rank: Rank) -> None:
    """Without a rollout line and without verdicts nothing is required: one tier, by the judge alone."""
    (ranking,) = rank([vote(3, 7, "b"), vote(3, 7, "b", "ba")], "--json").rankings
    assert column(ranking, "branch_index") == [7, 3]
    assert column(ranking, "objective_status") == ["not_required"] * 2


def test_a_rollout_line_says_what_is_required(rank: Rank) -> None:
    """A check by name counts where it is required, and the build then does not."""
    lint = {"type": "check", "rollout_id": "r1", "name": "lint"}
    checks = [{**lint, "branch_index": 0, "status": "fail"}, {**lint, "branch_index": 1, "status": "pass"}]
    (ranking,) = rank([*checks, build(0), opened(2, required=["lint"])], "--json").rankings
    assert column(ranking, "objective_status") == ["pass", "fail"]
    assert column(ranking, "branch_index") == [1, 0]


def test_a_branch_with_events_counts_only_when_it_ended(rank: Rank) -> None:
    """Without events a branch counts as ended; with events it has to have ended, and not by the provider's fault."""
    lines = [
        opened(4), *(build(index) for index in range(4)),
        event(1, "run_start"),
        event(2, "final_answer", answer="done"),
        event(3, "error", error="503 service unavailable"),
    ]  # fmt: skip
    (ranking,) = rank(lines, "--json").rankings
    statuses = {branch["branch_index"]: branch["objective_status"] for branch in ranking["branches"]}
    assert statuses == {0: "pass", 1: "unknown", 2: "pass", 3: "unknown"}


def test_the_first_vote_with_an_id_counts(rank: Rank) -> None:
    """The same question answered again changes nothing; another sample is another question."""
    (ranking,) = rank([vote(0, 1, "b"), vote(0, 1, "a"), vote(0, 1, None, "ba")], "--json").rankings
    assert column(ranking, "branch_index") == [1, 0]
    assert column(ranking, "n_comparisons") == [1, 1]
    assert column(ranking, "n_missing") == [1, 1]


def test_the_last_final_verdict_counts_and_repetitions_do_not(rank: Rank) -> None:
    """A later failure replaces a success; reading the success again does not bring it back."""
    lines = [build(0, verdict_id="v1"), build(0, "failure", 1), build(0, verdict_id="v1"), build(0, "running", 0)]
    (ranking,) = rank(lines, "--json").rankings
    assert column(ranking, "objective_status") == ["fail"]


def test_a_verdict_said_again_after_another_counts(rank: Rank) -> None:
    """Of pass, fail, pass the last one counts, and one verdict_id may stand in two branches."""
    passed, failed = {"status": "success", "exit_code": 0}, {"status": "failure", "exit_code": 1}
    said = [{"type": "build", "rollout_id": "r", "branch_index": 0, **each} for each in (passed, failed, passed)]
    shared = {"type": "build", "rollout_id": "r", "verdict_id": "ci"}
    ran = rank([*said, shared | {"branch_index": 1} | failed, shared | {"branch_index": 2} | passed], "--json")
    statuses = {each["branch_index"]: each["objective_status"] for each in ran.rankings[0]["branches"]}
    assert statuses == {0: "pass", 1: "fail", 2: "pass"}


def test_interleaved_rollouts_are_told_apart(rank: Rank) -> None:
    """One object for each rollout, in the order in which they first occur."""
    lines = [
        vote(0, 1, "a"),
        vote(0, 1, "b", rollout_id="r0"),
        vote(0, 1, "a", "ba"),
        vote(0, 1, "b", "ba", rollout_id="r0"),
    ]
    rankings = rank(lines, "--json").rankings
    assert [ranking["rollout_id"] for ranking in rankings] == ["r1", "r0"]
    assert [ranking["branches"][0]["branch_index"] for ranking in rankings] == [0, 1]


def test_what_is_ignored_is_said(rank: Rank) -> None:
    """Votes across tiers and branches that the rollout does not have are named beside the output."""
    ran = rank([opened(2), build(0), build(1, "failure", 1), build(5), vote(0, 1, "a")], "--json")
    assert ran.code == 0
    assert "r1: not one of its branches, ignored: 5" in ran.err
    assert "r1: 1 votes ignored" in ran.err


def test_a_bad_line_is_named_and_the_rest_is_ranked(rank: Rank) -> None:
    """File, line, field and reason on standard error; exit code 1."""
    lines = [build(0), b"{oops", build(1, "perhaps"), vote(0, 0, "a"), build(2, "failure", 1)]
    ran = rank(lines, "--json")
    assert ran.code == 1
    assert "lines.ndjson:2: not a JSON object" in ran.err
    assert "lines.ndjson:3: status: expected one of" in ran.err
    assert "lines.ndjson:4: b: a branch is not compared with itself" in ran.err
    assert column(ran.rankings[0], "branch_index") == [0, 2]
    assert not [path for path in Path().iterdir() if path.name != "lines.ndjson"]


def test_keep_going_accepts_bad_lines(rank: Rank) -> None:
    """The exit code is 0, and the bad line is still named."""
    ran = rank([b"[]", build(0)], "--json", "--keep-going")
    assert ran.code == 0
    assert "lines.ndjson:1" in ran.err


def test_people_get_a_table_with_the_numbers_below(rank: Rank) -> None:
    """Best first, with what the group can tell and how the judge behaved."""
    ran = rank([opened(2), build(0), build(1), *judged(lambda _a, _b, _order: "b", 2)])
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].strip() == "r1"
    assert lines[1].split()[:4] == ["rank", "95%", "branch", "objective"]
    assert lines[2].split()[:5] == ["1", "1-2", "1", "pass", "1.288"]
    assert "2 of 2 pass" in lines[4]
    assert "same answer in both orders 100%" in lines[5]


def test_an_id_is_shown_as_it_is(rank: Rank) -> None:
    """A rollout whose id looks like markup keeps its name."""
    assert "[bold]r[/]" in rank([vote(0, 1, "a", rollout_id="[bold]r[/]")]).out


def test_nothing_to_rank_is_said(rank: Rank) -> None:
    """A file that speaks of no branch is no failure, and no silence."""
    ran = rank([{"type": "rollout", "rollout_id": "r1", "task": "t"}], "--json")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing to rank" in ran.err


def test_a_missing_file_is_an_expected_failure(tmp_path: Path) -> None:
    """The error names the file; the command line prints it without a traceback."""
    with pytest.raises(InputError, match=r"nowhere\.ndjson: No such file"):
        app(["rank", str(tmp_path / "nowhere.ndjson")], result_action="return_value")


def test_the_sample_is_ranked_as_a_run_ranks_it(rank: Rank, tmp_path: Path) -> None:
    """The same lines give the same ranking, with and without a log, but for what acts are suspected of: `rank` reads none."""
    write_sample(tmp_path / "sample.ndjson")
    run_files([tmp_path / "sample.ndjson"], tmp_path / "out", Settings(), generate_key())
    ran = rank((tmp_path / "sample.ndjson").read_bytes().splitlines(), "--json")
    by_run = {
        row["rollout_id"]: row for row in map(orjson.loads, (tmp_path / "out/rankings.jsonl").read_bytes().splitlines())
    }
    suspected = {name for name, row in by_run.items() if any("hack_suspected" in str(each) for each in row["branches"])}
    assert 0 < len(suspected) < len(by_run) / 2
    assert ran.code == 0
    assert {ranking["rollout_id"] for ranking in ran.rankings} == by_run.keys()
    for ranking in ran.rankings:
        theirs = by_run[ranking["rollout_id"]]
        if theirs["rollout_id"] in suspected:
            continue
        assert ranking["stats"] == theirs["stats"]
        assert ranking["branches"] == [
            {name: row[name] for name in ranking["branches"][0]} for row in theirs["branches"]
        ]


def test_scores_of_single_branches_count_where_they_have_a_weight(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vote line with a score and one branch: the mean of those with an answer, null without any, never 0."""

    def score(branch: int, value: float | None, sample: int) -> Line:
        return {"type": "vote", "rollout_id": "r1", "a": branch, "score": value, "sample": sample, "judge": "m"}

    lines = [opened(3), *(build(branch) for branch in range(3)), score(0, 4, 0), score(0, None, 1), score(1, 9, 0)]
    lines += [score(1, 8, 1), score(2, None, 0)]
    weights = (
        '[{"key":"objective","weight":1,"component":"objective"},{"key":"s","weight":1,"component":"judge_scalar"}]'
    )
    monkeypatch.setenv("BRAID_EMISSION__RANKING__WEIGHTS", weights)
    (ranking,) = rank(lines, "--json").rankings
    assert column(ranking, "branch_index") == [2, 1, 0]
    assert column(ranking, "judge_scalar") == [None, 8.5, 4.0]
    assert column(ranking, "total") == [2.0, 1.85, 1.4]
    assert column(ranking, "judge_score") == [None, None, None]
    assert "mean scores: branch 1 8.5, branch 0 4.0" in rank(lines).out
    bad = rank([*lines, score(0, 11, 2), score(0, 1, 3) | {"b": 1}, vote(0, 1, "a") | {"b": None}], "--json")
    assert (bad.code, bad.err.count("score: expected 0 to 10"), bad.err.count("b: missing")) == (1, 2, 1)
    assert bad.rankings == [ranking]
