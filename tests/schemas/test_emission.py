"""The configuration that decides what is emitted, and its digest."""

from schemas.emission import EmissionConfig, JudgeConfig


def test_a_changed_copy_has_a_digest_of_its_own() -> None:
    """A value that the original has computed already does not go over to the copy."""
    config = EmissionConfig()
    assert len(config.digest) == 64
    changed = config.model_copy(update={"judge": JudgeConfig(kind="external")})
    assert changed.text == changed.model_dump_json() != config.text
    assert changed.digest != config.digest
    assert config.model_copy().digest == config.digest
