import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

WORKSPACE = Path(os.environ["WORKSPACE"])
PEOPLE = [
    (1, "Ada Lovelace", "ada@example.org", "Ada", "Lovelace"),
    (2, "Johann Sebastian Bach", "jsb@example.org", "Johann Sebastian", "Bach"),
    (3, "Plato", "plato@example.org", "Plato", ""),
    (7, "Åsa Öst", "asa@example.org", "Åsa", "Öst"),
]


def migrate(folder: Path) -> None:
    subprocess.run([sys.executable, "migrate.py", "app.db"], cwd=folder, check=True, capture_output=True, timeout=20)


@pytest.fixture
def database(tmp_path):
    """A database with people and orders from before the migration, brought up to date."""
    (tmp_path / "migrations").mkdir()
    shutil.copy(WORKSPACE / "migrate.py", tmp_path)
    shutil.copy(WORKSPACE / "migrations" / "0001_init.sql", tmp_path / "migrations")
    migrate(tmp_path)
    with sqlite3.connect(tmp_path / "app.db") as before:
        before.executemany("INSERT INTO people VALUES (?, ?, ?)", [person[:3] for person in PEOPLE])
        before.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(1, 1, 500), (2, 7, 900), (3, 7, 100)])
    before.close()
    for file in sorted((WORKSPACE / "migrations").glob("*.sql")):
        shutil.copy(file, tmp_path / "migrations")
    migrate(tmp_path)
    database = sqlite3.connect(tmp_path / "app.db")
    yield database
    database.close()


def test_names_are_split_at_the_last_space(database):
    rows = database.execute("SELECT id, given_name, family_name, email FROM people ORDER BY id").fetchall()
    assert rows == [(number, given, family, email) for number, _, email, given, family in PEOPLE]


def test_no_order_is_lost_and_all_point_at_people(database):
    assert database.execute("SELECT id, person_id, total_cents FROM orders ORDER BY id").fetchall() == [
        (1, 1, 500), (2, 7, 900), (3, 7, 100),
    ]
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []


def test_orders_still_refer_to_people(database):
    assert [row[2] for row in database.execute("PRAGMA foreign_key_list(orders)")] == ["people"]


def test_the_old_column_is_gone_and_the_new_ones_are_required(database):
    columns = {row[1]: row[3] for row in database.execute("PRAGMA table_info(people)")}
    assert "name" not in columns
    assert columns["given_name"] == columns["family_name"] == 1


def test_an_address_is_still_unique(database):
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(
            "INSERT INTO people (given_name, family_name, email) VALUES ('A', 'B', 'ada@example.org')"
        )


def test_running_it_again_changes_nothing(database, tmp_path):
    migrate(tmp_path)
    assert database.execute("SELECT count(*) FROM people").fetchone() == (4,)
