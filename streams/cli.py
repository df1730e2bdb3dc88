"""The `braid` command line. Commands are loaded when they are called, so that `--help` is quick.

An expected failure (`BraidError`, or a file that cannot be used) prints its message on standard error and exits with 1, never a
traceback.
"""

import sys
from importlib.metadata import version

from cyclopts import App, Parameter

from schemas.errors import BraidError

HELP = """Live, forked agent runs become ranked, evidenced training data: a replayable log on Kafka.

Try `braid demo` first. With files only: `braid run FILE --out DIR`. On Kafka: `braid up`, then `braid worker` and
`braid gateway`, then look with `braid rollouts` and `braid show ROLLOUT`.
"""

app = App(
    name="braid", help=HELP, help_format="markdown", version=lambda: version("braidstream"),
    default_parameter=Parameter(negative_iterable=()),  # nobody asks for an empty list
)  # fmt: skip

_COMMANDS = {
    "demo": ("streams.commands.demo:demo", "Show everything on four forked tasks, on a real Kafka."),
    "fork": ("streams.commands.fork:fork", "Run a task N times side by side, agents in sandboxes, live on the log."),
    "run": ("streams.commands.run:run", "Turn files into rankings, evidence and training rows, without a broker."),
    "rank": ("streams.commands.rank:rank", "Rank branches by the verdicts and votes in files."),
    "up": ("streams.commands.up:up", "Create the topics and register the schemas."),
    "broker": ("streams.commands.broker:app", "A real Kafka and schema registry on this machine, without Docker."),
    "worker": ("streams.commands.worker:worker", "Fold facts into closed rollouts, live."),
    "judge": ("streams.commands.judge:app", "Ask a judge about branches, and look at how it behaves."),
    "build-verifier": ("streams.commands.verifiers:build_verifier", "Test finished branches in fresh sandboxes."),
    "visual-verifier": ("streams.commands.verifiers:visual_verifier", "Look at finished branches' pages in a browser."),
    "gateway": ("streams.commands.gateway:gateway", "Take events and verdicts over HTTP."),
    "ingest": ("streams.commands.ingest:ingest", "Write the lines of files to the log."),
    "rollouts": ("streams.commands.rollouts:rollouts", "List rollouts and how they stand."),
    "show": ("streams.commands.show:show", "Show one rollout: ranking, rows, evidence, what was left out."),
    "tail": ("streams.commands.tail:tail", "Print a topic's records as they come."),
    "export": ("streams.commands.export:export", "Write whole rollouts as a dataset that trainers load."),
    "replay": ("streams.commands.replay:replay", "Fold the log again: the same bytes, or what other rules would give."),
    "archive": ("streams.commands.archive:app", "Keep the log in files, and bring it back."),
    "diff": ("streams.commands.diff:diff", "Tell what changed between two datasets, and which rule did it."),
    "memory": ("streams.commands.memory:app", "Remember branches that passed, and find them again."),
    "cancel": ("streams.commands.lifecycle:cancel", "Give a rollout up: no training rows come of it."),
    "close": ("streams.commands.lifecycle:close", "Settle a rollout with what it has now."),
    "dead-letters": ("streams.commands.dead_letters:app", "What did not count, why, and putting it back."),
    "schemas": ("streams.commands.schemas:app", "Check and register the Avro schemas."),
    "verify": ("streams.commands.verify:verify", "Check evidence: signatures, chains, and that nothing is missing."),
    "keys": ("streams.commands.keys:app", "Keys that sign evidence."),
    "doctor": ("streams.commands.doctor:doctor", "Show the effective configuration and what is wrong with it."),
}

for _name, (_target, _help) in _COMMANDS.items():
    app.command(_target, name=_name, help=_help)


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
        from streams.durable import problem_of

        sys.stderr.write(f"braid: {problem_of(error)}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
