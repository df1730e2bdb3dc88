"""The emission configuration that a settling pins."""

from hashlib import sha256

from pydantic import ValidationError

from agents.rollouts.broken_log import BrokenLogError
from schemas.closures import RolloutSettled
from schemas.codec.body import first_problem
from schemas.emission import EmissionConfig


def pinned_config(settled: RolloutSettled) -> EmissionConfig:
    """The configuration that a settling pins. Raises BrokenLogError if it cannot be read."""
    config = _configs.get(settled.config_digest)
    if config is None:
        try:
            config = EmissionConfig.pinned(settled.config)
        except ValueError as error:
            reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
            problem = f"the configuration that its settling pins cannot be read: {reason}"
            raise BrokenLogError(f"rollout {settled.rollout_id}: {problem}") from None
        if sha256(settled.config.encode()).hexdigest() != settled.config_digest:
            raise BrokenLogError(f"rollout {settled.rollout_id}: the pinned configuration does not match its digest")
        _configs[settled.config_digest] = config
    return config


_configs: dict[str, EmissionConfig] = {}
