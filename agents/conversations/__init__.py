"""Conversations: messages and model calls as events tell them, and the sequences that the calls make."""
