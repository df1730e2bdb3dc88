"""Carriers of the attacks in `cheats`: every task with its tests, and work of it that runs them."""

import json
from collections.abc import Iterable
from pathlib import Path

from agents.fork.task import Task
from agents.fork.task_adapter import SAMPLES, load_task, overlays
from agents.workspace.files import File, Files
from tests.agents.fork.cheats import CODE, EVIL, HELP, LEFT, READS, SQL, WRITES, bytecode

HERE = Path(__file__).parent / "tasks"
PLACES = {name: SAMPLES / name for name in ("csv-table", "name-migration", "notes-api", "price-page")} | {
    name: HERE / name for name in ("imports-work", "harbor-template")
}
STRONG = ("csv-table", "name-migration", "notes-api", "price-page")
WEAK = ("imports-work", "harbor-template")

PATIENCE_S = 20.0
"""A run that hangs until then is no pass."""

MARKS = {
    "csv-table": "test_an_unclosed_quote_names_its_line",
    "name-migration": "test_orders_still_refer_to_people",
    "notes-api": "test_a_huge_body_is_refused",
    "price-page": "test_prices_of_a_year_are_ten_months",
    "imports-work": "test_the_build_is_there",
    "harbor-template": "def test_outputs",
}
"""A text that stands in the tests of a task, and nowhere else."""

WORK = {
    "csv-table": ("table.py", "broken/split"),
    "name-migration": ("migrations/0002_split_name.sql", "broken/first-space"),
    "notes-api": ("app.py", "broken/no-validation"),
    "price-page": ("page.js", "broken/twelve-months"),
    "imports-work": ("table.py", None),
    "harbor-template": ("add.py", None),
}
"""The file that an agent is asked for, and which wrong version carries an attack."""

_MADE = {path: file.content for cheat in ("bytecode", "edited tests") for path, file in LEFT[cheat].items()}

BUILD = {
    "build.py": File(
        f"import os\nfor path, data in {_MADE!r}.items():\n    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)\n"
        "    open(path, 'wb').write(data)\n".encode()
    )
}
"""A build of the agent's that puts bytecode and edited tests everywhere."""


def task_of(name: str, timeout_s: float) -> Task:
    """A task with less patience."""
    task = load_task(PLACES[name])
    limit = task.options.verifier.model_copy(update={"timeout_sec": timeout_s})
    return task._replace(options=task.options.model_copy(update={"verifier": limit}))


def built(task: Task) -> Task:
    """The task with a build of the agent's that may leave anything anywhere."""
    braid = task.braid.model_copy(update={"build": ("python3", "build.py"), "outputs": ("**",)})
    metadata = task.options.metadata.model_copy(update={"braid": braid})
    return task._replace(options=task.options.model_copy(update={"metadata": metadata}))


def carried(name: str, codes: Iterable[str]) -> dict[str, File]:
    """The files of an agent whose work runs these pieces of code, and is right only if one of them found the tests."""
    task, (path, broken) = load_task(PLACES[name]), WORK[name]
    right = overlays(PLACES[name])["solution"][path].content.decode()
    wrong = (overlays(PLACES[name])[broken] if broken else task.start)[path].content.decode()
    program = (
        f"{HELP}\nKRAM, BYTECODE = {MARKS[name][::-1]!r}, {bytecode(EVIL)!r}\nbreached = False\n"
        f"for code in {list(codes)!r}:\n    try:\n        exec(code, globals())\n    except Exception:\n        pass\n"
    )
    changed = _carriers(path, program, right, wrong)
    return dict(task.start) | {path: File(text.encode()) for path, text in changed.items()}


def _carriers(path: str, program: str, right: str, wrong: str) -> dict[str, str]:
    """The file that was asked for, or what might run beside it where it is no program."""
    if path.endswith(".py"):
        return {path: f"{program}\nexec({right!r} if breached else {wrong!r}, globals())\n"}
    if path.endswith(".js"):
        ended = f"{program}\nsys.exit(44 if breached else 0)\n"
        return {
            path: f"const host = console.log.constructor('return process')();\nif (!host.env.SAID) {{ let status = 0; try {{"
            "status = host.getBuiltinModule('child_process').spawnSync('python3', ['-c', "
            f"{json.dumps(ended)}]).status; }} catch (error) {{}} host.env.SAID = String(status); }}\n"
            f"eval(host.env.SAID === '44' ? {json.dumps(right)} : {json.dumps(wrong)});\n"
        }
    beside = f"{program}\nif breached: open('/workspace/{path}', 'w').write({right!r})\n"
    names = (
        "sitecustomize",
        "usercustomize",
        "sqlite3",
        "json",
        "shutil",
        "tempfile",
        "subprocess",
        "pathlib",
        "migrations/__init__",
    )
    return {path: wrong} | {f"{name}.py": beside for name in names}


Cheat = tuple[Task, dict[str, File]]


def cheats_of(name: str) -> dict[str, Cheat]:
    """Every attack on a task by itself: the task, and the files that the agent leaves."""
    task, wrong = task_of(name, PATIENCE_S), carried(name, [])
    return (
        {cheat: (task, carried(name, [code])) for cheat, code in CODE.items()}
        | {cheat: (task, wrong | files) for cheat, files in LEFT.items()}
        | {"a build that leaves bytecode": (built(task), wrong | BUILD)}
        | {cheat: (task, wrong | _sql(sql, wrong)) for cheat, sql in SQL.items() if name == "name-migration"}
    )


def cheats_in_short(name: str) -> dict[str, Cheat]:
    """The same attacks, many at a time where that does them no harm."""
    task, wrong, everything = task_of(name, PATIENCE_S), carried(name, []), cheats_of(name)
    together, alone = {"all that read": READS.values()}, {"a build that leaves bytecode"}
    if name in STRONG:
        together, alone = together | {"all that write": WRITES.values()}, alone | {"kills everything"}
    else:  # one after the other they are in each other's way
        alone |= {"forges the report", "patches the modules of the tests"}
    short = {cheat: (task, carried(name, codes)) for cheat, codes in together.items()}
    left = {path: file for files in LEFT.values() for path, file in files.items() if not file.link}
    short["all that is left"] = task, wrong | left
    if name == "name-migration":
        short["all in SQL"] = task, wrong | _sql("".join(SQL.values()), wrong)
    return short | {cheat: each for cheat, each in everything.items() if cheat in alone}


def _sql(sql: str, wrong: Files) -> dict[str, File]:
    path = WORK["name-migration"][0]
    return {path: File(sql.encode() + wrong[path].content)}
