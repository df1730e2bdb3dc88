from pathlib import Path

Path("dist").mkdir()
Path("dist/built.txt").write_text("built\n")
