"""One module per trace format: it recognises the format and reads its episodes. Pure: no disk access."""
