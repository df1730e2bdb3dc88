"""Train on preference pairs while they come: `training.dpo.v1` in the shape that TRL loads, as a torch dataset that can be resumed.

    stream = DpoStream(kafka="127.0.0.1:9092", registry="http://127.0.0.1:8081/apis/ccompat/v7")
    stream.load_state_dict(saved)                                  # after a restart
    for row in DataLoader(stream.dataset(), batch_size=None, num_workers=2):
        train(row)
        stream.done(row)                                           # then save stream.state_dict() with the model

The stream goes on with the first pair that was not done, whatever workers had fetched ahead, and with any number of them. A
pair that a restarted worker wrote twice is handed out once. Without torch it is an ordinary iterable: `for row in stream`.
"""

# ruff: noqa: INP001
from collections.abc import Iterator
from typing import Any

from braidstream.topics import Topic, chat, functions


class DpoStream(Topic):
    """Pairs as they come; each worker of a DataLoader reads its own partitions."""

    def __init__(self, **options: Any) -> None:
        super().__init__("dpo", **options)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The pairs, without an end; or until none has arrived for `stop_after_idle_s`."""
        for pair in super().__iter__():
            yield {
                "prompt": chat(pair["prompt"]),
                "chosen": chat(pair["chosen"]),
                "rejected": chat(pair["rejected"]),
                "tools": functions(pair["tools"], [*pair["prompt"], *pair["chosen"], *pair["rejected"]]),
                "margin": pair["margin"],
                "basis": pair["basis"],
                "rollout_id": pair["rollout_id"],
                "record_id": pair["record_id"],
                "position": pair["position"],
            }
