"""Conversations: messages and model calls from events, and the sequences that the calls form."""
