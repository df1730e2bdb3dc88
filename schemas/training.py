"""Training rows, as trainers load them, each with where it came from; and what was kept out, with why."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Id, Index, Json, Real, Record
from schemas.rankings import RewardComponent

TokenId = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
"""A token's number in its vocabulary."""

Bit = Annotated[int, Field(strict=True, ge=0, le=1)]
"""0 or 1."""

Role = Literal["system", "developer", "user", "assistant", "tool"]
Basis = Literal["objective", "judge", "hack", "repair"]
Category = Literal["train", "audit_only", "quarantine", "reject"]
RowKind = Literal["sft", "dpo", "ppo"]
Fidelity = Literal["exact", "composed", "transcript", "reconstructed"]
"""How a row's messages are known: from the model calls themselves, from the conversation in its order, or from the steps of
the agent, whose outputs may be summaries."""


def _is_none(value: object) -> bool:
    return value is None


def _is_empty(value: tuple[object, ...]) -> bool:
    return not value


class FunctionCall(Record):
    """The function to call, with its arguments."""

    name: str
    """The tool."""
    arguments: Json
    """Its arguments: JSON text."""


class ToolCall(Record):
    """A call inside an assistant message."""

    id: str
    """`call_<n>`, by position."""
    type: Literal["function"] = "function"
    """Always `function`."""
    function: FunctionCall
    """The call itself."""


class Message(Record):
    """One chat message, in the shape of OpenAI and TRL."""

    role: Role
    """The speaker."""
    content: str | None = None
    """The text; null for an assistant that only calls tools."""
    tool_calls: tuple[ToolCall, ...] = ()
    """An assistant's calls."""
    tool_call_id: str | None = None
    """On a tool message: the call it answers."""
    name: str | None = None
    """On a tool message: the tool."""
    reasoning_content: str | None = Field(default=None, exclude_if=_is_none)
    """The reasoning of an assistant before its content."""
    trained: bool | None = Field(default=None, exclude_if=_is_none)
    """On an assistant message: whether the model said it in this conversation. False: it was given, and is not in the loss."""
    parts: Json | None = Field(default=None, exclude_if=_is_none)
    """The parts of a content that is more than one text: a JSON array as text. Media are referred to by their digests."""


class PolicySpan(Record):
    """Tokens of a stream that one version of the policy sampled."""

    first: Count
    """Place of the first one in the stream."""
    last: Count
    """Place of the last one."""
    version: str | None = None
    """The version; null where the call did not say."""


class LeftOut(Record):
    """Calls without their tokens."""

    reason: str
    """Why, as a short code."""
    calls: Count
    """How many calls."""


class TokenStream(Record):
    """The tokens of a conversation as the engine read and sampled them. Nothing is ever tokenised here."""

    token_ids: tuple[TokenId, ...]
    """Prompt and responses, in order."""
    loss_mask: tuple[Bit, ...]
    """For each token 1 where the model sampled it, else 0."""
    logprobs: tuple[Real, ...] = ()
    """For each sampled token, in order, its log-probability when it was sampled; there is none outside the mask. Empty where a call
    of the stream has none."""
    policy_versions: tuple[PolicySpan, ...] = ()
    """The sampled tokens by the version of the policy."""
    tokenizer: str | None = None
    """The tokenizer, where the producer named it."""


class Admission(Record):
    """Whether a row may be trained on, and why."""

    category: Category
    """Only `train` reaches a training topic."""
    score: Real
    """0..1: how well it is evidenced."""
    reasons: tuple[str, ...] = ()
    """Reasons against it."""


class Provenance(Record):
    """Where a row came from: what to look up in the log to make it again."""

    source: str = "braidstream"
    """The policy that made it."""
    settled_id: Id
    """The decision that pinned branches and verdicts."""
    closed_id: Id
    """The decision that pinned votes."""
    raw_digests: tuple[str, ...]
    """The raw digest of each branch involved."""
    config_digest: str
    """The configuration it was made under."""


class TrainingRecord(Record):
    """The fields that all rows have in common."""

    record_id: Id
    """A function of the content."""
    schema_version: str = "training-record/v1"
    """The format of this row."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    task: str
    """The task of the agents."""
    tools: Json = "[]"
    """The tools on offer: a JSON array as text."""
    model: str | None = None
    """The policy or model that acted."""
    admission: Admission
    """Why it may be trained on."""
    provenance: Provenance
    """Where it came from."""
    redactions: dict[str, int] = Field(default_factory=dict)
    """Removed secrets, by kind."""
    fidelity: Fidelity | None = Field(default=None, exclude_if=_is_none)
    """How the messages are known; of a pair, the weaker of its sides. Null in rows of emission version 1."""
    agent: str | None = Field(default=None, exclude_if=_is_none)
    """The agent whose conversation this is, where a branch has several."""


class SftRecord(TrainingRecord):
    """A trajectory worth imitating."""

    branch_index: Index
    """The branch."""
    attempt: Index
    """Its attempt."""
    messages: tuple[Message, ...]
    """The whole conversation."""
    rank: Count | None = None
    """Its rank in the rollout."""
    components: tuple[RewardComponent, ...] = ()
    """Reward components."""
    sequence: Count | None = Field(default=None, exclude_if=_is_none)
    """The sequence of the branch, counted from 0 in the order of their first calls."""
    n_sequences: Count | None = Field(default=None, exclude_if=_is_none)
    """How many sequences the branch has."""
    main: bool | None = Field(default=None, exclude_if=_is_none)
    """Whether it is the sequence with the branch's last response."""
    streams: tuple[TokenStream, ...] = Field(default=(), exclude_if=_is_empty)
    """The conversation as tokens, where every call has them: one stream, or several that do not join."""
    retokenised: bool | None = Field(default=None, exclude_if=_is_none)
    """Whether a later prompt did not begin with the tokens before it: engine or template wrote history anew. Null without tokens."""
    tokens_left_out: tuple[LeftOut, ...] = Field(default=(), exclude_if=_is_empty)
    """Calls whose tokens are in no stream, by reason: tokens_redacted, tokens_too_large, tokens_missing, tokens_differ,
    reasoning_dropped."""


class DpoRecord(TrainingRecord):
    """Two continuations of one prompt, one better."""

    chosen_branch: Index
    """The better branch."""
    rejected_branch: Index
    """The worse one."""
    prompt: tuple[Message, ...]
    """The messages that both share."""
    chosen: tuple[Message, ...]
    """The better continuation."""
    rejected: tuple[Message, ...]
    """The worse one."""
    chosen_answer: str | None = None
    """The better final answer, plain."""
    rejected_answer: str | None = None
    """The worse one."""
    basis: Basis
    """objective: one passes, the other fails. judge: both of one tier, told apart by votes. hack: the rejected one gamed its tests.
    repair: two rounds of one branch, of which one passes."""
    margin: Real
    """Difference of the totals."""
    p_chosen: Real | None = None
    """Probability that the chosen is really better, for judged pairs."""
    chosen_components: tuple[RewardComponent, ...] = ()
    """Reward components of the better one."""
    rejected_components: tuple[RewardComponent, ...] = ()
    """Reward components of the worse one."""
    chosen_round: Count | None = Field(default=None, exclude_if=_is_none)
    """Of compliance runs: the round that made the better text."""
    rejected_round: Count | None = Field(default=None, exclude_if=_is_none)
    """The round that made the worse one."""
    made_by: str | None = Field(default=None, exclude_if=_is_none)
    """Of compliance runs: model, or edit where code alone repaired the better text."""


class PpoRecord(TrainingRecord):
    """A trajectory with its reward."""

    branch_index: Index
    """The branch."""
    attempt: Index
    """Its attempt."""
    prompt: tuple[Message, ...]
    """The messages that the agent was given."""
    completion: tuple[Message, ...]
    """The messages of its run."""
    final_answer: str | None = None
    """Its answer, plain."""
    reward: Real
    """From 0 to pass_weight + coverage_bonus (1.1 by default); every known pass is above every known fail."""
    components: tuple[RewardComponent, ...] = ()
    """The components of the reward."""
    total: Real | None = None
    """The ranking's total."""
    group_mean: Real | None = None
    """Mean reward over the branches of the same task that are trained on."""
    group_std: Real | None = None
    """Their standard deviation."""
    advantage: Real | None = None
    """(reward - mean) / std: 0 in a group of equals, null in a group of one."""
    group_size: Count = 0
    """How many members."""
    sequence: Count | None = Field(default=None, exclude_if=_is_none)
    """The sequence of the branch, counted from 0 in the order of their first calls. Reward and group are the branch's."""
    n_sequences: Count | None = Field(default=None, exclude_if=_is_none)
    """How many sequences the branch has."""
    main: bool | None = Field(default=None, exclude_if=_is_none)
    """Whether it is the sequence with the branch's last response."""
    streams: tuple[TokenStream, ...] = Field(default=(), exclude_if=_is_empty)
    """The conversation as tokens, where every call has them: one stream, or several that do not join."""
    retokenised: bool | None = Field(default=None, exclude_if=_is_none)
    """Whether a later prompt did not begin with the tokens before it: engine or template wrote history anew. Null without tokens."""
    tokens_left_out: tuple[LeftOut, ...] = Field(default=(), exclude_if=_is_empty)
    """Calls whose tokens are in no stream, by reason: tokens_redacted, tokens_too_large, tokens_missing, tokens_differ,
    reasoning_dropped."""


class RejectedRecord(Record):
    """A row that was kept out of training."""

    record_id: Id
    """A function of the content."""
    rollout_id: Id
    """The rollout; also the Kafka key."""
    kind: RowKind
    """Which row it would have been."""
    branches: tuple[Index, ...]
    """The branches involved."""
    reasons: tuple[str, ...]
    """Why, as short codes: no_reward, not_passing, empty_answer, same_completion, ..."""
    admission: Admission | None = None
    """The admission that kept it out, where it came that far."""
    digests: tuple[str, ...] = ()
    """Raw digests of the branches, or of the row that was too large."""
    settled_id: Id
    """The decision that pinned branches and verdicts."""
    closed_id: Id
    """The decision that pinned votes."""
