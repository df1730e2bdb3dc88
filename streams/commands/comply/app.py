"""`braid comply` and its subcommands."""

from cyclopts import App

from streams.commands.comply.record_import import import_records
from streams.commands.comply.report import report
from streams.commands.comply.run import run
from streams.commands.comply.show import show
from streams.commands.comply.verify import verify

app = App(name="comply", help="Run, verify and compare tasks that say what their answer must look like.")
for command in (run, verify, report, show):
    app.command(command)
app.command(import_records, name="import")
