"""The transport: topics, codec, the live loop, the embedded log, and the `braid` command line."""

import schemas  # noqa: F401 - before any module of this package: it may be there compiled
