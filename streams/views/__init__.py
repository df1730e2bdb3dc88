"""Pages, tables and charts that people read."""
