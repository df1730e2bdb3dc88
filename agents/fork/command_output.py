"""Output streams in bounded memory: both ends, the length, and the digest of the whole."""

from hashlib import sha256

from agents.fork.sandbox import MAX_OUTPUT, Output


class Collector:
    """Collects a stream as it arrives."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._n_bytes = 0
        self._digest = sha256()

    def add(self, chunk: bytes) -> None:
        """Add the next bytes."""
        self._n_bytes += len(chunk)
        self._digest.update(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room > 0 else chunk
        if len(self._tail) > 4 * self._half:  # now and then, not for every chunk
            del self._tail[: -self._half]

    def finish(self) -> Output:
        """The output, as far as it was kept."""
        left_out = self._n_bytes - len(self._head) - min(len(self._tail), self._half)
        head, tail = bytes(self._head), bytes(self._tail[-self._half :]) if self._tail else b""
        note = b"\n[...%d bytes not kept...]\n" % left_out if left_out else b""
        return Output((head + note + tail).decode(errors="replace"), self._n_bytes, self._digest.hexdigest())


def collected(data: bytes) -> Output:
    """Collect a complete stream."""
    collector = Collector()
    collector.add(data)
    return collector.finish()
