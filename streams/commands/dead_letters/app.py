"""`braid dead-letters` and its subcommands."""

from cyclopts import App

from streams.commands.dead_letters.list import list_
from streams.commands.dead_letters.retry import retry
from streams.commands.dead_letters.show import show

app = App(name="dead-letters", help="What did not count, why, and putting it back.")
app.command(list_, name="list")
app.command(show)
app.command(retry)
