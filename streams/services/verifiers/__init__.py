"""Verdict producers: processes of their own that test what finished branches left behind."""
