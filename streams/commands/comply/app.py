"""`braid comply` and its subcommands."""

from cyclopts import App

from streams.commands.comply.report import report
from streams.commands.comply.verify import verify

app = App(name="comply", help="Run, verify and compare tasks that say what their answer must look like.")
for command in (verify, report):
    app.command(command)
