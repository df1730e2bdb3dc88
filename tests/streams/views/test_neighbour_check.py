"""`braid doctor` sees distributions that share the names of our packages."""

from importlib.metadata import distributions
from pathlib import Path

from streams.views.neighbour_check import check_neighbours


def install(folder: Path, name: str, *files: str) -> None:
    """A distribution as an installer leaves it."""
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_a_foreign_package_of_our_name_is_a_problem(tmp_path: Path) -> None:
    """openai-agents has `agents`: the check names both, and what to do."""
    install(tmp_path, "openai-agents", "agents/__init__.py", "agents/models/interface.py")
    install(tmp_path, "braidstream", "agents/__init__.py", "schemas/base.py")
    install(tmp_path, "harmless", "harmless/agents/__init__.py", "agents.py")
    check = check_neighbours(distributions(path=[str(tmp_path)]))
    assert (check.result, "openai-agents (agents)" in check.detail) == ("problem", True)
    assert "harmless" not in check.detail
    assert "braidstream-client" in check.advice


def test_this_environment_has_no_such_neighbour() -> None:
    """The client is installed beside the application here, and shares nothing with it."""
    assert check_neighbours().result == "ok"
