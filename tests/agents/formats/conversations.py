"""Exact conversations for the formats: rows of a real rollout with messages that a model saw and said."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

from agents.formats.shape import Group, Style
from schemas.training import FunctionCall, Message, ToolCall
from tests.agents.formats.rollouts import group_of, mixed

ANSWER = "It was the sign."
IMAGE = {"type": "image", "digest": "ab" * 32, "media_type": "image/png", "bytes": 3}


def said(role: str, content: str | None = None, **more: Any) -> Message:
    return Message.model_validate({"role": role, "content": content, **more})


def model(content: str | None, *calls: tuple[str, dict[str, Any]], **more: Any) -> Message:
    """A message that the model said, with calls of (id, arguments)."""
    asked = tuple(
        ToolCall(id=call_id, function=FunctionCall(name="shell", arguments=json.dumps(given)))
        for call_id, given in calls
    )
    return said("assistant", content, tool_calls=asked, trained=True, **more)


def given(content: str) -> Message:
    """An assistant message that the model was given."""
    return said("assistant", content, trained=False)


def result(call_id: str, content: str) -> Message:
    return said("tool", content, tool_call_id=call_id, name="shell")


PROMPT = (said("developer", "Be exact."), said("user", "An example?"), given("So."), said("user", "Why does it fail?"))
COMPLETION = (
    model("I look.", ("call_0", {"cmd": "ls"}), ("call_1", {"cmd": ["cat", 1]}), reasoning_content="Files first."),
    result("call_0", "calc.py"),
    result("call_1", "a - b"),
    said("user", "Hurry up."),
    given("(a colleague answers here)"),
    said("user", "Go on."),
    model(None, ("call_2", {"fix": {"a": None}})),
    result("call_2", "ok"),
    model(ANSWER, reasoning_content="Done."),
)
SIDE = (model("calc.py has a sum.", reasoning_content="Short."),)
SIDE_PROMPT = (said("user", "Sum this file up."),)


@cache
def exact(
    *, style: Style | None = None, completion: tuple[Message, ...] = COMPLETION, fidelity: str = "exact"
) -> Group:
    """A passing branch with two sequences (a sub-agent's and its own), a failing one with one, and the pair of both."""
    made = group_of(mixed())
    known = {"fidelity": fidelity, "n_sequences": 2}
    side = known | {"sequence": 1, "agent": "reader", "main": False}
    failing = (said("assistant", "No idea.", trained=True),)
    sft, ppo, pair = made.sft[0], made.ppo[0], made.dpo[0]
    main = {"prompt": PROMPT, "completion": completion, "final_answer": ANSWER, "sequence": 0, "main": True, **known}
    lost = {"prompt": PROMPT, "completion": failing, "final_answer": "No idea.", "sequence": 0, "fidelity": fidelity}
    group = replace(
        made,
        sft=(
            sft.model_copy(update={"messages": PROMPT + completion, "sequence": 0, **known}),
            sft.model_copy(update={"messages": SIDE_PROMPT + SIDE, "record_id": "side-sft", **side}),
        ),
        dpo=(
            pair.model_copy(update={"prompt": PROMPT, "chosen": completion, "rejected": failing, "fidelity": fidelity}),
        ),
        ppo=(
            ppo.model_copy(update=main),
            ppo.model_copy(
                update={"prompt": SIDE_PROMPT, "completion": SIDE, "final_answer": ANSWER, "record_id": "side", **side}
            ),
            made.ppo[1].model_copy(update=lost),
        ),
    )
    return group if style is None else replace(group, style=style)
