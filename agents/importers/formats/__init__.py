"""One module per trace format: how it is recognised, and how its episodes are read. Pure: no disk."""
