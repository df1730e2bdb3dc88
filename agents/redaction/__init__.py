"""Redaction: secrets and personal data removed from texts and JSON values."""
