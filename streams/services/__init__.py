"""Long-running processes: live worker, judge, verifiers, gateway, fork runner."""
