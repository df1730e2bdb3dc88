"""The `braid` command line. Commands are loaded when they are called, so that `--help` is quick.

An expected failure (`BraidError`, or a file that cannot be used) prints its message on standard error and exits with 1, never a
traceback.
"""

import sys
from importlib.metadata import version

from cyclopts import App, Group, Parameter

from schemas.errors import BraidError

HELP = """Live, forked agent runs become ranked, evidenced training data: a replayable log on Kafka.

Try `braid demo` first. With files only: `braid run FILE --out DIR`. `braid COMMAND --help` has an example of each.
"""

app = App(
    name="braid", help=HELP, help_format="markdown", version=lambda: version("braidstream"),
    default_parameter=Parameter(negative_iterable=()),  # an empty list needs no filter
)  # fmt: skip

_GROUPS = {
    "Try it": {
        "demo": ("streams.commands.demo:demo", "Show everything on four forked tasks."),
        "fork": ("streams.commands.fork:fork", "Run a task N times side by side, in sandboxes."),
    },
    "Bring runs in": {
        "run": ("streams.commands.run:run", "Turn files into training data, without a broker."),
        "import": (
            "streams.commands.imports:import_traces",
            "Read traces of other systems: benchmarks, SDKs, sessions.",
        ),
        "ingest": ("streams.commands.ingest:ingest", "Write the lines of files to the log."),
        "gateway": ("streams.commands.gateway:gateway", "Take events and verdicts over HTTP."),
        "otlp": ("streams.commands.otlp:otlp", "Take traces of instrumented agents (OpenTelemetry)."),
        "proxy": ("streams.commands.proxy:proxy", "Capture model calls on their way to the API."),
    },
    "Verify and judge": {
        "build-verifier": ("streams.commands.verifiers:build_verifier", "Test finished branches in fresh sandboxes."),
        "hack-verifier": ("streams.commands.verifiers:hack_verifier", "Try whether branches gamed their tests."),
        "hacks": ("streams.commands.hacks:hacks", "Look for gamed tests in files."),
        "visual-verifier": ("streams.commands.verifiers:visual_verifier", "Look at their pages in a browser."),
        "compliance-verifier": (
            "streams.commands.verifiers:compliance_verifier",
            "Verify finished compliance runs from their texts.",
        ),
        "judge": ("streams.commands.judge.app:app", "Let a judge compare branches; see how it behaves."),
        "comply": ("streams.commands.comply.app:app", "Run and verify tasks that constrain their answer."),
        "rank": ("streams.commands.rank:rank", "Rank branches by the verdicts and votes in files."),
    },
    "Look": {
        "view": ("streams.commands.view:view", "Serve pages that show what branches did."),
        "rollouts": ("streams.commands.rollouts:rollouts", "List rollouts and how they stand."),
        "show": ("streams.commands.show:show", "Show all about one rollout, its ranking first."),
        "tail": ("streams.commands.tail:tail", "Print a topic's records as they come."),
        "dead-letters": ("streams.commands.dead_letters.app:app", "Show what did not count, and put it back."),
    },
    "Get data out": {
        "export": ("streams.commands.export:export", "Write a dataset that trainers load."),
        "archive": ("streams.commands.archive:app", "Keep the log in files, and bring it back."),
        "memory": ("streams.commands.memory:app", "Remember branches that passed, for later forks."),
    },
    "Trust": {
        "verify": ("streams.commands.verify:verify", "Check signatures, chains, and that nothing is missing."),
        "replay": ("streams.commands.replay:replay", "Fold the log again: same bytes, or other rules."),
        "diff": ("streams.commands.diff:diff", "Tell what changed between two datasets, and why."),
        "audit": ("streams.commands.audit.app:app", "Can this number, this dataset, this benchmark be trusted?"),
        "keys": ("streams.commands.keys:app", "Make and show the keys that sign evidence and verdicts."),
    },
    "Operate": {
        "broker": ("streams.commands.broker:app", "Run Kafka and a registry here, without Docker."),
        "up": ("streams.commands.up:up", "Create the topics and register the schemas."),
        "worker": ("streams.commands.worker:worker", "Fold facts into closed rollouts, live."),
        "close": ("streams.commands.lifecycle:close", "Settle a rollout with what it has now."),
        "cancel": ("streams.commands.lifecycle:cancel", "Give a rollout up: no training rows come of it."),
        "capture": ("streams.commands.capture:app", "Read captured calls again, with today's fold."),
        "schemas": ("streams.commands.schemas:app", "Check and register the Avro schemas."),
        "doctor": ("streams.commands.doctor:doctor", "Show the configuration and what is wrong with it."),
    },
}
"""The commands by purpose, in the order of a first day."""

_COMMANDS = {name: found for commands in _GROUPS.values() for name, found in commands.items()}

for _at, (_title, _commands) in enumerate(_GROUPS.items()):
    _group = Group(_title, sort_key=_at)
    for _place, (_name, (_target, _help)) in enumerate(_commands.items()):
        app.command(_target, name=_name, help=_help, group=_group, sort_key=_place)
app["--help"].group = app["--version"].group = Group("Options", sort_key=len(_GROUPS))


def _describe(words: list[str]) -> None:
    """Let the command that is called describe itself, with all of its docstring; the list has the short texts."""
    if words and words[0] in _COMMANDS and (command := app[words[0]]).default_command is not None:
        command.help = None


def main(words: list[str] | None = None) -> None:
    """The entry point; the words of the command line when they are not given."""
    try:
        _describe(sys.argv[1:] if words is None else words)
        app() if words is None else app(words)
    except BraidError as error:
        sys.stderr.write(f"braid: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a directory that is a file, a disk that is full
        from streams.log.durable_files import problem_of

        sys.stderr.write(f"braid: {problem_of(error)}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
