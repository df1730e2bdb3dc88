"""`braid audit` and its subcommands."""

from cyclopts import App

from streams.commands.audit.compare import adjust, compare, conformal, power
from streams.commands.audit.report import report
from streams.commands.audit.rows import contamination, rows
from streams.commands.audit.tasks import tasks
from streams.commands.audit.triage import triage
from streams.commands.audit.verifiers import tools, verifiers

app = App(name="audit", help="Can this number, this dataset, this benchmark be trusted?")
for command in (compare, triage, power, adjust, conformal, tasks, verifiers, rows, contamination, tools, report):
    app.command(command)
