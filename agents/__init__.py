"""The decisions: pure, synchronous, deterministic cores, one folder per capability."""

import schemas  # noqa: F401 - before any module of this package: it may be there compiled
