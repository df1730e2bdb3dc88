"""Any run over the wire: events say what was sent and answered, call by call, however histories grow, shrink and repeat."""

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.capture.exchanges import Exchange, folded
from tests.agents.conversations.test_server import plainly, received, trained
from tests.examples import shares

Chat = list[dict[str, Any]]
WORDS = st.sampled_from(["", "a", "b", "a b", "é\n", "x" * 700])


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """An assistant message: words, calls (ids come again), or both."""
    calls = draw(st.lists(st.tuples(st.sampled_from(["t1", "t2"]), st.sampled_from(["{}", '{"a": 1}'])), max_size=2))
    calls = list({name: (name, arguments) for name, arguments in calls}.values())
    words = draw(WORDS) if calls else draw(WORDS.filter(bool))
    tools = [{"id": name, "type": "function", "function": {"name": "f", "arguments": text}} for name, text in calls]
    return {"role": "assistant", "content": words or None} | ({"tool_calls": tools} if tools else {})


def replies_to(message: dict[str, Any], draw: st.DrawFn) -> Chat:
    """An agent's next messages after an answer."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": draw(WORDS.filter(bool))}
        for call in message.get("tool_calls", ())
    ]
    return results or [{"role": "user", "content": draw(WORDS.filter(bool))}]


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[Chat, dict[str, Any] | int]]:
    """Calls with their answers, or with the status that refused them."""
    told: list[tuple[Chat, dict[str, Any] | int]] = []
    for _ in range(draw(st.integers(1, 7))):
        answered = [(sent, answer) for sent, answer in told if isinstance(answer, dict)]
        if answered and draw(st.integers(0, 3)):
            sent, answer = draw(st.sampled_from(answered))
            asked = [*sent, answer, *replies_to(answer, draw)]
            if len(asked) > 3 and draw(st.integers(0, 4)) == 0:  # a compaction
                asked = [asked[0], {"role": "user", "content": "short: " + draw(WORDS)}]
        else:
            system = (
                [{"role": "system", "content": "s" * draw(st.sampled_from([1, 600]))}] if draw(st.booleans()) else []
            )
            asked = [*system, {"role": "user", "content": draw(WORDS.filter(bool))}]
        refused = draw(st.sampled_from([0, 0, 0, 0, 429, 500]))
        told.append((asked, refused or draw(answers())))
    return told


def exchange_of(asked: Chat, answer: dict[str, Any] | int, *, streamed: bool) -> Exchange:
    request = json.dumps({"model": "m", "messages": asked, "stream": streamed}).encode()
    path = "/v1/chat/completions"
    if isinstance(answer, int):
        return Exchange(path, request, answer, "application/json", b'{"error": {"message": "no"}}')
    if not streamed:
        body = {"id": "c", "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
        return Exchange(path, request, 200, "application/json", json.dumps(body).encode())
    words, calls = answer["content"] or "", answer.get("tool_calls", [])
    deltas: list[dict[str, Any]] = [{"role": "assistant"}, *({"content": each} for each in words)]
    for index, call in enumerate(calls):
        text = call["function"]["arguments"]
        deltas.append(
            {
                "tool_calls": [
                    {"index": index, "id": call["id"], "type": "function", "function": {"name": "f", "arguments": ""}}
                ]
            }
        )
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": each}}]} for each in text]
    events = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return Exchange(path, request, 200, "text/event-stream", stream.encode())


def heard(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
    return {"role": "assistant", "content": message["content"], "tool_calls": calls}


def told_calls(events: list[tuple[str, dict[str, Any]]]) -> list[tuple[Chat, Chat]]:
    """Every call of a branch with its context and its response, as its events say them."""
    messages, paths, found = {}, dict[str | None, list[str]]({None: []}), []
    for kind, data in events:
        if kind == "message":
            messages[data["id"]] = data
        elif kind == "model_call":
            context = data["context"]
            sent = [*paths[context["after"]][: context["keep"]], *context["add"]]
            response = [data["response"]] if "response" in data else []
            paths[data["call_id"]] = [*sent, *response]
            found.append(([messages[each] for each in sent], [messages[each] for each in response]))
    return found


@settings(max_examples=shares(1.2))
@given(runs(), st.booleans())
def test_events_say_what_was_sent_and_answered_and_rows_say_no_more(
    run: list[tuple[Chat, dict[str, Any] | int]], streamed: bool
) -> None:
    made = folded([exchange_of(asked, answer, streamed=streamed) for asked, answer in run])
    calls = told_calls(made.events)
    served = [
        repr(plainly([*received({"messages": asked}, "chat"), *([heard(answer)] if isinstance(answer, dict) else [])]))
        for asked, answer in run
    ]
    assert [repr(plainly([*sent, *response])) for sent, response in calls] == served
    assert [bool(response) for _, response in calls] == [isinstance(answer, dict) for _, answer in run]
    rows = Counter(trained((*row.prompt, *row.completion) for row in made.group.ppo))
    assert rows <= Counter(each for each, (_, answer) in zip(served, run, strict=True) if isinstance(answer, dict))
    if isinstance(run[-1][1], int):  # its last call failed: the branch is unknown
        assert (made.group.sft, rows) == ((), Counter())
    elif not made.group.rejected:
        assert rows.total() == sum(isinstance(answer, dict) for _, answer in run)
