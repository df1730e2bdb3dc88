"""Reward files of Harbor's layout: read as untrusted, and never more than they say."""

import pytest

from agents.fork.reward import MAX_REWARD, read_reward
from agents.workspace.files import File


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1", "all"), ("1\n", "all"), ("1.0", "all"), ("0", "less"), ("0.999", "less"), ("-0.0", "less"),
        ("1.01", "other"), ("-1", "other"), ("100", "other"),
        ("", None), ("pass", None), ("nan", None), ("inf", None), ("1 1", None), ("true", None),
    ],
)  # fmt: skip
def test_a_reward_of_1_is_all_and_less_is_less(text: str, meant: str | None) -> None:
    """Only 1 is a pass; another scale is not guessed at, and no number is no reward."""
    assert read_reward({"reward.txt": File(text.encode())}) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1", "all"), ('{"reward": 1}', "all"), ('{"reward": 1, "speed": 0.2}', "all"), ('{"a": 1, "b": 1.0}', "all"),
        ('{"a": 1, "b": 0.5}', "less"), ('{"a": 1, "b": 12}', "other"), ('{"reward": 0.5, "a": 1}', "less"),
        ("{}", None), ("[]", None), ("null", None), ("true", None), ('{"a": "1"}', None), ('{"a": NaN}', None),
        ('{"a": 1, "b": null}', None), ("[" * 100_000, None), (" " * MAX_REWARD + "1", None),
        ("1" + "0" * 400, "other"), ("1" * 5000, None),
    ],
)  # fmt: skip
def test_of_several_rewards_the_one_named_reward_or_the_worst_counts(text: str, meant: str | None) -> None:
    """In reward.json, which goes before reward.txt."""
    assert read_reward({"reward.json": File(text.encode()), "reward.txt": File(b"1")}) == meant


def test_no_file_is_no_reward() -> None:
    """Files of other names belong to other programs."""
    assert read_reward({"rewards.json": File(b"1")}) is None
