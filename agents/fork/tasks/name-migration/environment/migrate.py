"""Bring a database up to date: `python migrate.py FILE`."""

import sqlite3
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "migrations"


def migrate(path: str) -> list[str]:
    """Run what has not run yet; returns the names of the files."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
    done = {name for (name,) in database.execute("SELECT name FROM migrations")}
    ran = []
    for file in sorted(FOLDER.glob("*.sql")):
        if file.name in done:
            continue
        try:
            database.executescript(f"BEGIN;\n{file.read_text()}\n;")
            database.execute("INSERT INTO migrations VALUES (?)", (file.name,))
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        ran.append(file.name)
    database.close()
    return ran


if __name__ == "__main__":
    print("\n".join(migrate(sys.argv[1])) or "nothing to do")
