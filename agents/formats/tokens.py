"""tokens-parquet: one row for each token stream, for trainers that learn from ids and never tokenise. Always Parquet.

`prompt_ids` is everything before the first sampled token, `response_ids` everything from it on; `loss_mask` and `logprobs` have a
place for each id of the response, 1 and a number where the model sampled it. Rows of one `group_id` are samples of one task; a branch
with several streams has its reward on each of them. The columns that verl and SkyRL read for prompts are next to them.
"""

from collections.abc import Iterator
from hashlib import sha256

from agents.formats.shape import Column, Format, Group, Left, ListOf, Row, Speech, Struct
from agents.formats.streams import DATA_SOURCE, reader_columns, stream_columns, versions_of
from schemas.training import PpoRecord


def rows(group: Group) -> Iterator[Row | Left]:
    """One row for each stream of each sequence of each branch."""
    for record in group.ppo:
        streams = group.streams(record)
        if not streams:
            barred = record.record_id in group.barred_tokens or any(
                each.reason == "tokens_redacted" for each in record.tokens_left_out
            )
            yield Left("tokens_redacted" if barred else "no_tokens")
            continue
        group_id = sha256(f"{record.rollout_id}\0{record.task}".encode()).hexdigest()[:32]
        prompt = [{"role": said.role, "content": said.content or ""} for said in record.prompt]
        beside = reader_columns(group, record.task, prompt)
        for number, stream in enumerate(streams):
            versions = versions_of(stream)
            yield Row(
                {
                    **stream_columns(stream),
                    "reward": record.reward,
                    "advantage": record.advantage,
                    "group_id": group_id,
                    "group_mean": record.group_mean,
                    "group_std": record.group_std,
                    "group_size": record.group_size,
                    "policy_version": versions[0] if len(versions) == 1 else None,
                    "policy_versions": [
                        {"first": each.first, "last": each.last, "version": each.version}
                        for each in stream.policy_versions
                    ],
                    "tokenizer": stream.tokenizer,
                    "retokenised": record.retokenised,
                    "rollout_id": record.rollout_id,
                    "branch_index": record.branch_index,
                    "sequence": record.sequence,
                    "stream": number,
                    "record_id": record.record_id,
                    "env_class": DATA_SOURCE,
                    **beside,
                },
                (record,),
                lost=() if number else _left_out(record),
            )


def _left_out(record: PpoRecord) -> tuple[str, ...]:
    """The calls of a row that are not in its streams, by their reasons."""
    return tuple(each.reason for each in record.tokens_left_out for _ in range(each.calls))


_COLUMNS: dict[str, Column] = {
    "prompt_ids": ListOf("whole"), "response_ids": ListOf("whole"), "loss_mask": ListOf("whole"), "logprobs": ListOf("real"),
    "reward": "real", "advantage": "real", "group_id": "text", "group_mean": "real", "group_std": "real", "group_size": "whole",
    "policy_version": "text",
    "policy_versions": ListOf(Struct({"first": "whole", "last": "whole", "version": "text"})),
    "tokenizer": "text", "retokenised": "truth", "rollout_id": "text", "branch_index": "whole", "sequence": "whole",
    "stream": "whole", "record_id": "text", "data_source": "text", "ability": "text", "env_class": "text",
    "prompt": ListOf(Struct({"role": "text", "content": "text"})),
    "reward_model": Struct({"style": "text", "ground_truth": "text"}),
    "extra_info": Struct({"split": "text", "index": "whole", "uid": "text"}),
}  # fmt: skip

FORMATS = (
    Format(
        "tokens-parquet", "Token ids with masks, log-probabilities, rewards and policy versions", frozenset({"ppo"}), rows,
        {"": _COLUMNS}, ("parquet",), speech=Speech(media=True),
    ),
)  # fmt: skip
