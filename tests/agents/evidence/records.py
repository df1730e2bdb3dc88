"""Records to sign and verify."""

from typing import Any, Protocol


def branch_record(rollout_id: str, index: int) -> dict[str, Any]:
    return {
        "schema_version": "aep/v0.3",
        "run_id": f"{rollout_id}/b{index}/a0",
        "model_id": "modèle-✓",
        "actions": [
            {
                "action_id": f"call-{index}",
                "tool_name": "bash",
                "state_changing": True,
                "side_effect_class": "mutate-external",
                "result_digest": f"{index:064x}",
                "timestamp_ms": 1_750_000_000_000 + index,
            }
        ],
        "verifier_results": [{"verifier_id": "build", "passed": index % 2 == 0, "score": index / 4}],
        "run_side_effect_class_max": "mutate-external",
        "created_at_ms": 1_750_000_000_999,
    }


class Rollout(Protocol):
    def __call__(self, rollout_id: str = "r/1", branches: int = 3) -> list[dict[str, Any]]: ...
