"""`braid judge`: the judge worker, and looks at how the judge behaves."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
from cyclopts import App, Parameter

from schemas.errors import BraidError
from streams.commands.numbers import MetricsPort, Samples, Slot, number

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from agents.judge.agreement import TimedVote
    from schemas.judging import JudgeVote

Flag = Parameter(negative="")

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


app = App(name="judge", help="Ask a judge about branches of one tier, and look at how it behaves.")


@app.command
def worker(
    *,
    slot: Slot | None = None,
    rules: Path | None = None,
    concurrency: Annotated[int | None, number("--concurrency", 1, 1000)] = None,
    metrics_port: MetricsPort | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
) -> None:
    """Answer judge requests with votes, until SIGTERM or Ctrl-C.

    The judge is the one that emission.judge names (kind scripted or anthropic); `braid worker` must run with the same.
    Run more of them, each with a slot of its own, and they share the partitions. One that dies is simply started again:
    votes that are in the log are never paid for twice.

    judge.calls_per_hour is counted by this worker for itself: every other one, `again`, `calibrate`, `braid run --judge` and a
    build verifier with criteria may spend as much beside it.

    Example: `braid judge worker --slot 1`

    Parameters
    ----------
    slot
        The worker's place in the group, counted from 0.
    rules
        The rule file of a scripted judge.
    concurrency
        Calls under way at once.
    metrics_port
        Serve /metrics, /healthz and /readyz on this port of loopback (0: not at all).
    log_level
        How much to say on standard error.
    """
    import asyncio

    import uvloop

    from streams.cluster import structured_logs as logs
    from streams.cluster.config import load
    from streams.services.judge.worker import run_judge_worker

    logs.configure(log_level)
    given = {"slot": slot, "rules": rules, "concurrency": concurrency, "metrics_port": metrics_port}
    settings = load(judge={name: value for name, value in given.items() if value is not None} or None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_judge_worker(settings))


@app.command
def probe(
    *,
    task: str = "Fix the failing test in parser.py.",
    a: Path | None = None,
    b: Path | None = None,
    samples: Samples = 1,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Ask the configured judge about one pair, in both orders, and show what came back and what it cost.

    Without files: a run that shows its tests passing (a) against one that only says so (b). Exits with 1 when there was no
    answer at all. judge.calls_per_hour does not hold here.

    Example: `braid judge probe --task "Fix the test" --a first.txt --b second.txt`

    Parameters
    ----------
    task
        What the two were asked.
    a
        A file with the text of the first one.
    b
        A file with the text of the second one.
    samples
        How often each order is asked.
    json
        Print one JSON object per vote.
    """
    import asyncio

    from streams.cluster.config import load
    from streams.cluster.judge_client import make_judge
    from streams.jobs.judge.asking import Asker
    from streams.jobs.judge.calibration import GoldenPair, golden_request
    from streams.log.terminal_text import json_of
    from streams.views.judge_pages import probe_page
    from streams.views.tables import show

    settings = load()
    first = EVIDENCE if a is None else _text(a)
    second = CLAIM if b is None else _text(b)
    if first == second:
        raise ProbeError("the two texts are the same: a tie by content, no judge is asked")
    request, side = golden_request(
        GoldenPair(id="probe", task=task, better=first, worse=second), settings.emission.judge, samples
    )
    if side == "b":  # people named them, so a stays a
        assert request.b is not None
        sides = {
            "a": request.b.model_copy(update={"branch_index": 0}),
            "b": request.a.model_copy(update={"branch_index": 1}),
        }
        request = request.model_copy(update=sides)

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
    if json:
        for vote in votes:
            shown = json_of(vote) | ({"why": whys[vote.vote_id]} if vote.vote_id in whys else {})
            sys.stdout.write(orjson.dumps(shown).decode() + "\n")
    else:
        show(*probe_page(votes, whys))
    if all(vote.preferred is None for vote in votes):
        sys.exit(1)


@app.command
def stats(
    *,
    from_dir: Annotated[list[Path] | None, Flag] = None,
    unfinished: Annotated[bool, Flag] = False,
    prefix: Annotated[list[str] | None, Flag] = None,
    spans: Annotated[int, number("--spans", 1, 1000)] = 8,
    plot: Path | None = None,
    metrics_file: Path | None = None,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Show how judges behave: by judge and over time, and whether they agree.

    A judge with votes by several rubrics is shown once for each of them.

    Example: `braid judge stats --from-dir results`

    Parameters
    ----------
    from_dir
        Read what `braid run --out DIR` or `braid judge again --out DIR` left in DIR, instead of Kafka. Give it again for more
        directories: their judges are compared.
    unfinished
        Read directories although they have no manifest, or have lost files since.
    prefix
        Read the topics with this prefix (instead of the configured one). Give it again for more.
    spans
        Into how many spans of time the votes are divided.
    plot
        Draw it over time, too, into this file (SVG: any browser shows it).
    metrics_file
        Write it for Prometheus, too: a .prom file that the node exporter's textfile collector reads.
    json
        Print one JSON object.
    """
    import asyncio

    from streams.cluster.config import load
    from streams.jobs.judge.stored_votes import votes_of_directory, votes_of_prefixes
    from streams.log.kafka_reader import hush
    from streams.views.judge_pages import stats_json, stats_page
    from streams.views.progress import progress
    from streams.views.tables import show

    if plot is not None and plot.suffix != ".svg":
        raise ProbeError(f"--plot {plot}: pictures are SVG; give a name that ends in .svg")
    if plot is not None:
        _check_place("--plot", plot)
    _check_metrics_file(metrics_file)
    settings = load()
    prefixes = prefix or ([] if from_dir else [settings.prefix])
    hush()

    async def read() -> "list[TimedVote]":
        found = [
            vote for directory in from_dir or () for vote in await votes_of_directory(directory, unfinished=unfinished)
        ]
        with progress() as say:
            return found + await votes_of_prefixes(settings, prefixes, say)

    votes = asyncio.run(read())
    if plot is not None:
        from streams.views.judge_plot import plot_svg

        _write("--plot", plot, plot_svg(votes, spans).encode())
    if metrics_file is not None:
        from streams.jobs.judge.textfile import stats_metrics

        _write_metrics(metrics_file, stats_metrics(votes, time.time()))
    if json:
        sys.stdout.write(orjson.dumps(stats_json(votes, spans)).decode() + "\n")
    else:
        show(*stats_page(votes, spans))


@app.command
def calibrate(
    file: Path,
    /,
    *,
    samples: Samples = 1,
    save: Path | None = None,
    against: Path | None = None,
    metrics_file: Path | None = None,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Ask the configured judge about pairs of which it is known which one is better.

    judge.calls_per_hour is counted for this run alone: what workers and other commands ask meanwhile is not in it.

    Example: `braid judge calibrate golden.jsonl --save calibration.json`

    Parameters
    ----------
    file
        One JSON object per line: task, better, worse; optional id and shared_prefix.
    samples
        How often each order of a pair is asked.
    save
        Keep the result in this file.
    against
        Compare with a result that was kept earlier.
    metrics_file
        Write it for Prometheus, too: a .prom file that the node exporter's textfile collector reads.
    json
        Print one JSON object.
    """
    import asyncio

    from streams.cluster.config import load
    from streams.cluster.judge_client import Budget, make_judge
    from streams.jobs.judge.asking import Asker, Spent
    from streams.jobs.judge.calibration import Calibration, drift, read_earlier, read_golden
    from streams.jobs.judge.calibration import calibrate as ask_all
    from streams.views.judge_pages import calibration_page, reason_lines
    from streams.views.tables import show

    if save is not None:
        _check_place("--save", save)
    _check_metrics_file(metrics_file)
    settings, pairs = load(), read_golden(file)
    before = None if against is None else read_earlier(against)

    async def run() -> tuple[Calibration, Spent]:
        judge = make_judge(settings, Budget(settings.judge.calls_per_hour).allow)
        asker = Asker(judge, settings.judge.concurrency)
        try:
            return await ask_all(asker, pairs, settings.emission.judge, samples=samples), asker.spent
        finally:
            await judge.close()

    found, spent = asyncio.run(run())
    changed = None if before is None else drift(before, found)
    if json:
        shown = found.plain() | {"drift": None if changed is None else changed._asdict()}
        sys.stdout.write(orjson.dumps(shown).decode() + "\n")
    else:
        show(*calibration_page(found, changed))
    complain(*reason_lines(spent))
    if spent.missing["budget"]:
        complain(
            f"the budget of {settings.judge.calls_per_hour:,} calls per hour (judge.calls_per_hour) was spent; "
            f"{spent.missing['budget']:,} answers are missing for that"
        )
    if save is not None:
        _write("--save", save, orjson.dumps(found.plain(), option=orjson.OPT_INDENT_2) + b"\n")
    if metrics_file is not None:
        from streams.jobs.judge.textfile import calibration_metrics

        _write_metrics(metrics_file, calibration_metrics(found, changed, time.time()))


@app.command
def again(
    *,
    out: Path | None = None,
    to_prefix: str | None = None,
    from_dir: Path | None = None,
    unfinished: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Judge stored rollouts again, with the judge and rubric that are configured now. The facts are not touched.

    Every rollout that has closed is judged, also one that closed while the judge was away. Its branches, events, verdicts and
    all other configuration are those that were settled; only votes, rankings and what follows from them are new. Votes that
    exist are not paid for again: a run that was cut off, or whose hourly budget was spent, is started again and goes on.

    judge.calls_per_hour is counted for this run alone: what workers and other commands ask meanwhile is not in it, nor what an
    earlier run asked.

    Example: `braid judge again --from-dir results --out judged`

    Parameters
    ----------
    out
        Write votes, rankings, training rows and evidence to files in this directory.
    to_prefix
        Write them to topics with this prefix (instead of --out).
    from_dir
        Read the log that `braid run --out DIR` left in DIR, instead of Kafka.
    unfinished
        Read it although it has no manifest, or has lost files since.
    json
        Print one JSON object with the counts.
    """
    import asyncio

    from streams.cluster.config import load
    from streams.cluster.judge_client import Budget, make_judge
    from streams.cluster.signing_keys import signing_key
    from streams.jobs.judge.again import Judged, into_directory, into_topics, judge_again
    from streams.jobs.judge.asking import Spent
    from streams.jobs.judge.closed_rollouts import ClosedRollouts
    from streams.jobs.targets import TargetError
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.views.judge_pages import again_page, reason_lines
    from streams.views.progress import progress
    from streams.views.tables import show

    if (out is None) == (to_prefix is None):
        raise TargetError("say where the results go: --out DIR, or --to-prefix PREFIX")
    settings = load()
    budget = Budget(settings.judge.calls_per_hour)
    hush()

    async def run() -> tuple[Judged, Spent]:
        source = reader_of(settings, from_dir, unfinished=unfinished)
        judge, key = make_judge(settings, budget.allow), signing_key(settings)
        into = into_directory(out, key) if out is not None else into_topics(settings, to_prefix or "", key)
        try:
            with progress() as say:
                async with source, into as results:
                    chosen, concurrency = settings.emission.judge, settings.judge.concurrency
                    return await judge_again(ClosedRollouts(source), results, judge, chosen, concurrency, say)
        finally:
            await judge.close()

    counts, spent = asyncio.run(run())
    if json:
        plain = counts.plain() | {"judge": spent.plain(budget), "out": None if out is None else str(out)}
        sys.stdout.write(orjson.dumps(plain).decode() + "\n")
    else:
        show(*again_page(counts, spent, budget))
    for rollout_id in counts.broken:
        complain(f"{rollout_id!r}: the log does not hold what was settled; it cannot be judged again")
    complain(*reason_lines(spent))
    if counts.unfinished:
        complain(
            f"the budget of {settings.judge.calls_per_hour:,} calls per hour is spent, {counts.unfinished:,} rollouts "
            "are unfinished; run this again later, votes that are there are not paid for twice"
        )
    if counts.broken or counts.unfinished:
        sys.exit(1)


def complain(*lines: str) -> None:
    """Say something on standard error, a line for each."""
    for each in lines:
        sys.stderr.write(f"braid: {each}\n")


def _check_place(option: str, path: Path) -> None:
    """Whether a file can be written there, found out before anything is read or paid for."""
    if path.is_dir():
        raise ProbeError(f"{option} {path} is a directory; give the name of a file")
    if not path.parent.is_dir():
        raise ProbeError(f"{option} {path}: {path.parent} is no directory; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ProbeError(f"{option} {path} cannot be written; choose another place")


def _write(option: str, path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ProbeError(f"{option} {path} cannot be written: {error.strerror}") from None


def _check_metrics_file(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix != ".prom":
        raise ProbeError(f"--metrics-file {path}: the collector reads .prom files only; give a name that ends so")
    _check_place("--metrics-file", path)


def _write_metrics(path: Path, found: "CollectorRegistry") -> None:
    """Write all of it at once: whoever reads the directory sees no half file."""
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(str(path), found)
    except OSError as error:
        raise ProbeError(f"--metrics-file {path} cannot be written: {error.strerror}") from None


def _text(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProbeError(f"{path} cannot be read as text: {error}") from None
    if not text.strip():
        raise ProbeError(f"{path} is empty; there is nothing to judge")
    return text
