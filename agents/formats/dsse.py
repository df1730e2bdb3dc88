"""Evidence as DSSE: every record of a rollout carries a signed in-toto Statement, for verifiers that know attestations.

The exporter vouches for the evidence that it signs, so it signs only evidence that is signed by a key it trusts, and
whole chains.
"""

from collections.abc import Iterator, Mapping

from agents.evidence.build import json_view
from agents.evidence.dsse import with_envelope
from agents.evidence.signing import Json, signature_faults, signed_bytes
from agents.formats.shape import Format, Group, Left, Row


def envelopes(group: Group) -> Iterator[Row | Left]:
    """{...the AEP record, dsse_envelope}: the chain of a rollout, the closing record last."""
    attestor = group.attestor
    views = [json_view(record) for record in group.chain]
    if attestor is None or any(view.get("signature") is None for view in views):
        yield from (Left("unsigned_evidence") for _ in views)
    elif any(_distrusted(view, attestor.trusted) for view in views):
        yield from (Left("untrusted_evidence") for _ in views)
    else:
        for record, view in zip(group.chain, views, strict=True):
            yield Row(with_envelope(view, attestor.key), (record,))


def _distrusted(view: Json, trusted: Mapping[str, bytes]) -> list[str]:
    return signature_faults(view["signature"], signed_bytes(view), trusted)


FORMATS = (
    Format(
        "dsse", "Signed evidence: AEP records with DSSE envelopes around in-toto Statements", frozenset(), envelopes,
        {"": {}}, ("jsonl",), verbatim=True,
    ),
)  # fmt: skip
