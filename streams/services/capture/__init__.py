"""The capture fold as a worker: captures of the log become events of branches."""
