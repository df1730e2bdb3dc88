"""The capturing proxy: model calls pass through as they are, and a copy of each becomes a capture of its branch."""
