"""Signatures of verdicts: what they cover, whom they convince, and what a rollout makes of two verdicts with one id."""

from typing import Any

import pytest

from agents.evidence.keys import generate_key
from agents.trust.trusted_keys import TrustedKey, untrusted
from agents.trust.verdict_signature import content_digest, sign_verdict, signed_content
from agents.verdicts.meaning import Verdict
from schemas.codec.body import decode, encode
from schemas.verdicts import BuildVerdict, CheckVerdict, TestCounts, VerdictSignature, VisualVerdict

KEY, OTHER = generate_key("builds"), generate_key("others")
TRUSTED = {"builds": TrustedKey(public_key=KEY.public.hex())}
ABOUT: dict[str, Any] = {"rollout_id": "r1", "branch_index": 0, "verdict_id": "v1"}
BUILD = BuildVerdict(
    **ABOUT, status="success", exit_code=0, coverage=1.0, tests=TestCounts(passed=3, failed=0, total=3), produced_by="ü"
)
VERDICTS: list[Verdict] = [
    BUILD,
    VisualVerdict(**ABOUT, verdict="fail", reason="nothing is drawn"),
    CheckVerdict(**ABOUT, name="lint", status="pass", score=0.1),
]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_signed_verdict_convinces_also_after_a_journey_through_the_log(verdict: Any) -> None:
    """Avro and JSON give back what was signed."""
    signed = sign_verdict(verdict, KEY)
    assert untrusted(decode(type(signed), encode(signed)), TRUSTED) is None
    assert untrusted(type(signed).model_validate_json(signed.model_dump_json(exclude_none=True)), TRUSTED) is None
    assert untrusted(verdict, TRUSTED) == "the verdict is not signed, and trusted_verifiers is set"


@pytest.mark.parametrize(
    "change",
    [
        {"rollout_id": "r2"}, {"branch_index": 1}, {"attempt": 1}, {"verdict_id": "v2"}, {"exit_code": 1}, {"coverage": None},
        {"tests": TestCounts(passed=4, failed=0, total=4)}, {"produced_by": "unknown"},
    ],
)  # fmt: skip
def test_a_signature_is_worth_nothing_on_another_verdict(change: dict[str, Any]) -> None:
    """Of another rollout, branch, attempt or id, or with one value changed."""
    moved = sign_verdict(BUILD, KEY).model_copy(update=change)
    assert untrusted(moved, TRUSTED) == "the signature is not one of the key 'builds' over this verdict"


def test_a_signature_of_one_kind_is_none_of_another() -> None:
    """The same words as a look at a page and as a check have different bytes."""
    visual = sign_verdict(VisualVerdict(**ABOUT), KEY)
    check = CheckVerdict(**ABOUT, name="x", status="unknown", signature=visual.signature)
    assert "not one of the key" in str(untrusted(check, TRUSTED))
    assert content_digest(VisualVerdict(**ABOUT)) != content_digest(BuildVerdict(**ABOUT, status="unknown"))


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (sign_verdict(BUILD, OTHER).signature, "does not name the key 'others'"),
        (VerdictSignature(key_id="builds", sig=OTHER.sign(b"x")), "not one of the key 'builds'"),
        (VerdictSignature(key_id="builds", sig="not base64"), "not one of the key 'builds'"),
        (VerdictSignature(key_id="builds", sig=""), "not one of the key 'builds'"),
    ],
)
def test_foreign_and_forged_signatures_are_named(signature: VerdictSignature, reason: str) -> None:
    """A key that is not trusted, and the name of a trusted one on something else."""
    assert reason in str(untrusted(BUILD.model_copy(update={"signature": signature}), TRUSTED))


def test_a_key_speaks_for_its_kinds_only() -> None:
    """A linter's key gives no build verdict, and no check passes for a build."""
    lint = {"builds": TrustedKey(public_key=KEY.public.hex(), kinds=("lint",))}
    assert untrusted(sign_verdict(VERDICTS[2], KEY), lint) is None
    assert untrusted(sign_verdict(BUILD, KEY), lint) == (
        "trusted_verifiers lets the key 'builds' speak for lint, not for 'build'"
    )
    posing = CheckVerdict(**ABOUT, name="build", status="pass")
    assert "may not be named build" in str(untrusted(sign_verdict(posing, KEY), TRUSTED))


def test_fields_that_are_added_later_leave_signatures_valid() -> None:
    """A default is not part of what is signed, so the bytes are these whatever fields the record has by now."""
    assert signed_content(BuildVerdict(**ABOUT, status="success", exit_code=0)) == (
        b"braidstream verdict v1\nBuildVerdict\n"
        b'{"branch_index":0,"exit_code":0,"rollout_id":"r1","status":"success","verdict_id":"v1"}'
    )
