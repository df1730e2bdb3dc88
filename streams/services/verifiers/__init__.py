"""Verdict producers: separate processes that test the files of finished branches."""
