"""The note that calls of a branch could not be captured: small enough to fit where the calls did not."""

from schemas.captures import Capture
from schemas.jsontext import compact

LOST_BY = "proxy-lost"
"""The writer of such notes. Events sent over HTTP name another writer, so that no agent can write one of these."""


def lost_calls(rollout_id: str, branch_index: int, attempt: int, capture_id: str, received_ms: int) -> Capture:
    """Return the note. A branch with a lost call is incomplete: it ends as `infra_error`, whatever its agent reports."""
    event = {"event": "content_left_out", "data": {"reason": "not_recorded", "count": 1}}
    return Capture(
        rollout_id=rollout_id, branch_index=branch_index, attempt=attempt, capture_id=capture_id, kind="event", source=LOST_BY,
        received_ms=received_ms, body=compact({"event": event, "at_ms": received_ms}).encode(),
    )  # fmt: skip
