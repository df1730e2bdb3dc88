"""The token streams of a row in a sentence: how many tokens, which policy sampled them, and what is missing."""

from schemas.training import DpoRecord, PpoRecord, SftRecord
from streams.log.terminal_text import line, several

LEFT_OUT = {
    "tokens_redacted": "their text was redacted",
    "tokens_too_large": "they did not fit into a slice",
    "tokens_missing": "the engine returned none",
    "tokens_differ": "the prompt that they continue is not on the log",
    "tokens_incomplete": "another call of the conversation has none",
    "reasoning_dropped": "the row leaves reasoning out",
}


def token_words(row: SftRecord | DpoRecord | PpoRecord) -> str:
    """A row's tokens in words; empty if it has none."""
    if isinstance(row, DpoRecord):
        return ""
    said = [*_streams(row)]
    if row.retokenised:
        said.append("a later prompt did not begin with the tokens before it")
    said += [f"{several(each.calls, 'call')} without tokens: {_why(each.reason)}" for each in row.tokens_left_out]
    return f"Tokens: {'; '.join(said)}." if said else ""


def _streams(row: SftRecord | PpoRecord) -> list[str]:
    if not row.streams:
        return []
    tokens, sampled = sum(len(each.token_ids) for each in row.streams), sum(sum(each.loss_mask) for each in row.streams)
    scored = all(each.logprobs for each in row.streams)
    policies = list(
        dict.fromkeys(span.version for each in row.streams for span in each.policy_versions if span.version)
    )
    tokenizers = list(dict.fromkeys(each.tokenizer for each in row.streams if each.tokenizer))
    return [
        f"{tokens:,} in {several(len(row.streams), 'stream')}, {sampled:,} sampled"
        + (" with log-probabilities" if scored else ", no log-probabilities"),
        *([f"policy {line(', '.join(policies))}"] if policies else []),
        *([f"tokenizer {line(', '.join(tokenizers))}"] if tokenizers else []),
    ]


def _why(reason: str) -> str:
    return f"{LEFT_OUT[reason]} ({reason})" if reason in LEFT_OUT else reason.replace("_", " ")
