"""Record agents on Braidstream (`Braid`), and read the training rows that come of it (`braidstream.topics`)."""

from braidstream.tracer import Braid, Rollout, Run, current_run

__all__ = ["Braid", "Rollout", "Run", "current_run"]
