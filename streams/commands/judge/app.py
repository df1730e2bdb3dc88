"""`braid judge` and its subcommands."""

from cyclopts import App

from streams.commands.judge.again import again
from streams.commands.judge.calibrate import calibrate
from streams.commands.judge.probe import probe
from streams.commands.judge.stats import stats
from streams.commands.judge.worker import worker

app = App(name="judge", help="Ask a judge about branches of one tier, and look at how it behaves.")
for command in (worker, probe, stats, calibrate, again):
    app.command(command)
