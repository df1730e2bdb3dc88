"""Evidence to test with: a fixed key and the signed records of small rollouts."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agents.evidence.signing import SigningKey, record_hash, sign_chain, sign_record
from tests.agents.evidence.records import Rollout, branch_record

SEED = bytes(range(32))


@pytest.fixture(scope="session")
def key() -> SigningKey:
    return SigningKey("key-test", Ed25519PrivateKey.from_private_bytes(SEED))


@pytest.fixture(scope="session")
def keys(key: SigningKey) -> dict[str, bytes]:
    return {key.key_id: key.public}


@pytest.fixture(scope="session")
def rollout(key: SigningKey) -> Rollout:
    """Make the signed chain of one rollout: its branches, then the closing record."""

    def make(rollout_id: str = "r/1", branches: int = 3) -> list[dict[str, Any]]:
        records = list(sign_chain([branch_record(rollout_id, index) for index in range(branches)], key))
        head = record_hash(records[-1]) if records else None
        closing = {
            "schema_version": "aep/v0.3",
            "run_id": f"{rollout_id}/ranking",
            "created_at_ms": 1_750_000_000_999,
            "prev_record_hash": head,
            "closing": {"records": branches, "head": head, "vote_ids": [], "emitted": []},
        }
        return [*records, sign_record(closing, key)]

    return make
