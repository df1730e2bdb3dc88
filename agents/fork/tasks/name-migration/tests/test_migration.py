import json
import os
import subprocess

import pytest

PEOPLE = [
    (1, "Ada Lovelace", "ada@example.org", "Ada", "Lovelace"),
    (2, "Johann Sebastian Bach", "jsb@example.org", "Johann Sebastian", "Bach"),
    (3, "Plato", "plato@example.org", "Plato", ""),
    (7, "Åsa Öst", "asa@example.org", "Åsa", "Öst"),
]
ORDERS = [[1, 1, 500], [2, 7, 900], [3, 7, 100]]

# Runs on the workspace: a database with people and orders from before the migration is brought up to date, twice. Only
# migrate.py and the SQL are taken into its folder, so nothing else of the workspace is run; its answer has a pipe of its own.
PROGRAM = r"""
import json, shutil, sqlite3, subprocess, sys, tempfile
from pathlib import Path

people, orders = json.load(sys.stdin)
folder, work = Path(tempfile.mkdtemp()), Path.cwd()
(folder / "migrations").mkdir()
shutil.copy(work / "migrate.py", folder)

def migrate():
    command = [sys.executable, "-I", "migrate.py", "app.db"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=20)

shutil.copy(work / "migrations" / "0001_init.sql", folder / "migrations")
migrate()
before = sqlite3.connect(folder / "app.db")
before.executemany("INSERT INTO people VALUES (?, ?, ?)", people)
before.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
before.commit()
before.close()
for file in sorted((work / "migrations").glob("*.sql")):
    shutil.copy(file, folder / "migrations")
migrate()
database = sqlite3.connect(folder / "app.db")

def rows(query):
    try:
        return database.execute(query).fetchall()
    except sqlite3.Error as error:
        return type(error).__name__

found = {
    "people": rows("SELECT id, given_name, family_name, email FROM people ORDER BY id"),
    "orders": rows("SELECT id, person_id, total_cents FROM orders ORDER BY id"),
    "dangling": rows("PRAGMA foreign_key_check"),
    "refers_to": [row[2] for row in rows("PRAGMA foreign_key_list(orders)")],
    "columns": {row[1]: row[3] for row in rows("PRAGMA table_info(people)")},
}
found["twice"] = rows("INSERT INTO people (given_name, family_name, email) VALUES ('A', 'B', 'ada@example.org')")
database.rollback()
migrate()
found["again"] = rows("SELECT count(*) FROM people")
with open(int(sys.argv[1]), "w") as answer:
    json.dump(found, answer)
"""


@pytest.fixture(scope="module")
def found():
    """What the database holds after the migration."""
    answer, inside = os.pipe()
    command = ["work", "--fd", str(inside), "python3", "-I", "-c", PROGRAM, str(inside)]
    asked = json.dumps([[person[:3] for person in PEOPLE], ORDERS])
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(inside,), text=True) as process:
        os.close(inside)
        process.stdin.write(asked)
        process.stdin.close()
        with os.fdopen(answer) as told:
            said = told.read()
    assert said, "the database cannot be brought up to date"
    return json.loads(said)


def test_names_are_split_at_the_last_space(found):
    assert found["people"] == [[number, given, family, email] for number, _, email, given, family in PEOPLE]


def test_no_order_is_lost_and_all_point_at_people(found):
    assert found["orders"] == ORDERS
    assert found["dangling"] == []


def test_orders_still_refer_to_people(found):
    assert found["refers_to"] == ["people"]


def test_the_old_column_is_gone_and_the_new_ones_are_required(found):
    assert "name" not in found["columns"]
    assert found["columns"]["given_name"] == found["columns"]["family_name"] == 1


def test_an_address_is_still_unique(found):
    assert found["twice"] == "IntegrityError"


def test_running_it_again_changes_nothing(found):
    assert found["again"] == [[len(PEOPLE)]]
