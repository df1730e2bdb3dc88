"""Rows of exact branches say what the model saw and what it said, call by call."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.importers.line_error import LineError
from agents.importers.lines import LineReader
from agents.importers.slices import Slicer
from schemas.conversation import MAX_MESSAGE_BYTES
from schemas.emission import EmissionConfig
from schemas.events import AgentEvent, AgentEvents
from schemas.jsontext import compact
from tests.agents.conversations.chats import ChatAgent, opened, rendered, rendered_row
from tests.agents.formats.rollouts import group_of, group_of_facts
from tests.examples import shares


def reasons(group: Any, kind: str = "sft") -> list[tuple[str, ...]]:
    return [record.reasons for record in group.rejected if record.kind == kind]


def chat() -> ChatAgent:
    agent = ChatAgent()
    agent.context = [agent.message("system", "Be brief."), agent.message("user", "Hallo, wie heißt du?")]  # type: ignore[attr-defined]
    return agent


def said_once(agent: ChatAgent, group: Any) -> None:
    """Every response stands once as a trained message, after just what was sent."""
    found = []
    for row in group.ppo:
        messages = (*row.prompt, *row.completion)
        shown = rendered_row(messages)
        found += [(shown[:at], shown[at]) for at, message in enumerate(messages) if message.trained]
    wanted = []
    for sent, received in agent.calls:
        whole = rendered([*sent, received])
        wanted.append((whole[:-1], whole[-1]))
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


@st.composite
def agents(draw: st.DrawFn) -> ChatAgent:
    """A run with continuations, retries, side calls, second samples, compactions and sub-agents, in any order."""
    agent = ChatAgent()
    text = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=6).map("é{}".format)
    threads: list[tuple[list[str], str | None, str | None]] = []
    for _ in range(draw(st.integers(1, 12))):
        what = draw(st.sampled_from(["new", "go on", "go on", "go on", "again", "compact", "fail"]))
        name = draw(st.sampled_from([None, "sub"]))
        if what == "new" or not threads:
            context = [agent.message("system", draw(text)), agent.message("user", draw(text))]
            after = None
        else:
            context, after, name = threads[draw(st.integers(0, len(threads) - 1))]
            if what == "compact":
                context = [context[0], agent.message("user", f"so far: {draw(text)}")]
            elif what != "again":
                asked = list(agent._messages[context[-1]].get("tool_calls", ()))
                context = [
                    *context,
                    *(agent.message("tool", draw(text), tool_call_id=call["id"], name=call["name"]) for call in asked),
                    *([] if asked and draw(st.booleans()) else [agent.message("user", draw(text))]),
                ]
        named = {"agent": name} if name else {}
        if what == "fail":
            agent.ask(context, None, after, **named)
            continue
        calls = [
            {
                "id": draw(st.sampled_from(["a", "b"])) + str(number),
                "name": "read_file",
                "arguments": f'{{"n": {number}}}',
            }
            for number in range(draw(st.integers(0, 2)))
        ]
        more: dict[str, Any] = {"tool_calls": calls} if calls else {}
        more |= {"reasoning": "hm"} if draw(st.booleans()) else {}
        answer = agent.message("assistant", draw(text) + "x", **more)
        call_id = agent.ask(context, answer, after, **named)
        threads.append(([*context, answer], call_id, name))
    return agent


@settings(max_examples=shares(3), deadline=None)
@given(agents())
def test_every_response_is_trained_on_once_after_what_was_sent(agent: ChatAgent) -> None:
    if not agent.calls:
        return
    group = group_of([opened(), *agent.end()], config=EmissionConfig(redact=False))
    said_once(agent, group)
    assert {row.fidelity for row in group.ppo} == {"exact"}
    assert [row.sequence for row in group.ppo] == [*range(len(group.ppo))] == [*range(group.ppo[0].n_sequences or 0)]


def test_a_failed_call_is_in_no_row_and_its_retry_is() -> None:
    agent = chat()
    failed = agent.ask(agent.context, None)
    agent.ask(agent.context, agent.message("assistant", "Ada."), failed)
    group = group_of([opened(), *agent.end()])
    (row,) = group.sft
    assert [message.content for message in row.messages] == ["Be brief.", "Hallo, wie heißt du?", "Ada."]
    assert group.branches[0].final_answer == "Ada."


def test_messages_that_were_given_are_not_trained_on() -> None:
    agent = ChatAgent()
    given = [agent.message("user", "2+2?"), agent.message("assistant", "4"), agent.message("user", "3+3?")]
    agent.ask(given, agent.message("assistant", "6"))
    (row,) = group_of([opened(), *agent.end()]).ppo
    assert [message.trained for message in row.prompt] == [None, False, None]
    assert [message.trained for message in row.completion] == [True]


def test_other_tools_begin_another_sequence() -> None:
    agent = chat()
    first = agent.message("assistant", "one")
    call = agent.ask(agent.context, first, tools=[{"name": "a"}])
    agent.ask(
        [*agent.context, first, agent.message("user", "go on")],
        agent.message("assistant", "two"),
        call,
        tools=[{"name": "b"}],
    )
    rows = group_of([opened(), *agent.end()]).sft
    assert [row.tools for row in rows] == ['[{"name":"a"}]', '[{"name":"b"}]']
    assert [[message.trained for message in row.messages] for row in rows] == [
        [None, None, True],
        [None, None, False, None, True],
    ]


def test_an_agent_that_goes_on_with_the_words_of_another_begins_another_sequence() -> None:
    agent = ChatAgent()
    task, said = agent.message("user", "hi"), agent.message("assistant", "Ask the other.")
    first = agent.ask([task], said)
    agent.ask([task, said], agent.message("assistant", "I am the other."), first, agent="other")
    more = agent.message("user", "So?")
    agent.ask([task, said, more], agent.message("assistant", "Done."), first)
    rows = group_of([opened(), *agent.end()]).sft
    assert [(row.agent, [each.content for each in row.messages if each.trained]) for row in rows] == [
        (None, ["Ask the other.", "Done."]),
        ("other", ["I am the other."]),
    ]


def test_calls_of_an_exact_branch_are_those_of_its_responses() -> None:
    """Events beside the messages are joined by id; a history that is told again adds no call."""
    agent = chat()
    asks = agent.message("assistant", "look", tool_calls=[{"id": "t", "name": "read_file", "arguments": "{}"}])
    call = agent.ask(agent.context, asks, usage={"input": 10, "output": 2})
    agent.event("tool_call", {"toolName": "read_file", "args": {}, "callId": "t"}, "tool")
    agent.event("tool_result", {"callId": "t", "output": "raw", "error": {"code": "E1", "message": "no"}}, "tool")
    result = agent.message("tool", "no", tool_call_id="t", name="read_file", is_error=True)
    again = agent.message("assistant", "looked", tool_calls=[{"id": "t", "name": "read_file", "arguments": "{}"}])
    told = agent.message("tool", "no, again", tool_call_id="t", name="read_file")
    agent.ask([*agent.context, asks, result], agent.message("assistant", "x"), call, usage={"input": 20, "output": 3})
    agent.ask([agent.context[0], again, told], agent.message("assistant", "Ada."), usage={"input": 5, "output": 1})
    (branch,) = group_of([opened(), *agent.end()]).branches
    assert [(each.call_id, each.text, each.error and each.error.code) for each in branch.tool_calls] == [
        ("t", "look", "E1")
    ]
    assert branch.usage is not None
    assert (branch.usage.input_tokens, branch.usage.output_tokens) == (35, 6)
    assert (branch.fidelity, branch.sequences) == ("exact", 2)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"context": {"add": ["nobody"]}, "response": "m-2"}, "unknown_message"),
        ({"context": {"after": "k9", "keep": 1}, "response": "m-2"}, "unknown_context"),
        ({"context": {"after": "k1", "keep": 9}, "response": "m-2"}, "unknown_context"),
        ({"context": {"keep": 1}, "response": "m-2"}, "unknown_context"),
        ({"context": {"add": ["m-0"]}, "response": "nobody"}, "unknown_response"),
        ({"context": {"add": ["m-0"]}, "response": "m-1"}, "unknown_response"),
        ({"call_id": "k1", "context": {"add": ["m-0"]}, "response": "m-2"}, "repeated_call_id"),
        ({"context": {"add": ["m-0"]}, "response": "m-2", "tools_digest": "f" * 64}, "unknown_tools"),
    ],
)
def test_a_reference_to_nothing_keeps_the_branch_out(data: dict[str, Any], code: str) -> None:
    agent = chat()
    agent.ask(agent.context, agent.message("assistant", "Ada."))
    agent.event("model_call", {"call_id": "k2", **data})
    group = group_of([opened(), *agent.end()])
    assert not group.sft
    assert not group.ppo
    assert reasons(group) == reasons(group, "ppo") == [("not_representable", code)]


def test_outputs_of_calls_with_one_id_go_to_them_in_order() -> None:
    agent = ChatAgent()
    task = agent.message("user", "hi")
    asked = agent.message("assistant", tool_calls=[{"id": "x", "name": "r", "arguments": "{}"}] * 2)
    first = agent.ask([task], asked)
    outputs = [agent.message("tool", text, tool_call_id="x") for text in "12"]
    agent.ask([task, asked, *outputs], agent.message("assistant", "Done."), first)
    (row,) = group_of([opened(), *agent.end()]).sft
    assert [(each.content, each.tool_call_id) for each in row.messages[2:4]] == [("1", "call_0"), ("2", "call_1")]


def test_arguments_that_are_no_object_keep_the_branch_out() -> None:
    agent = chat()
    agent.ask(
        agent.context,
        agent.message("assistant", "a", tool_calls=[{"id": "t", "name": "read_file", "arguments": "{'x'"}]),
    )
    group = group_of([opened(), *agent.end()])
    assert reasons(group, "ppo") == [("malformed_arguments",)]


def test_a_branch_that_cannot_be_said_is_no_member_of_its_group() -> None:
    good, bad, failing = ChatAgent(branch=0), ChatAgent(branch=1), ChatAgent(branch=2)
    for agent in (good, bad, failing):
        agent.ask([agent.message("user", "hi")], agent.message("assistant", f"hello {agent is good}"))
    bad.event("model_call", {"call_id": "k2", "context": {"add": ["nobody"]}, "response": "m-1"})
    group = group_of([opened(3), *good.end(), *bad.end(), *failing.end(passes=False)])
    assert {(row.branch_index, row.group_size, row.group_mean) for row in group.ppo} == {(0, 2, 0.5), (2, 2, 0.5)}


def test_equal_rows_are_kept_once_and_all_samples_are() -> None:
    agents_ = [ChatAgent(branch=0), ChatAgent(branch=1)]
    for agent in agents_:
        agent.ask([agent.message("user", "hi")], agent.message("assistant", "hello"))
    group = group_of([opened(2), *agents_[0].end(), *agents_[1].end()])
    assert len(group.sft) == 1
    assert reasons(group) == [("duplicate_of", group.sft[0].record_id)]
    assert len(group.ppo) == 2


def test_sub_agents_are_dropped_when_asked() -> None:
    agent = chat()
    agent.ask(
        [agent.message("user", "find", agent="sub")], agent.message("assistant", "found", agent="sub"), agent="sub"
    )
    agent.ask(agent.context, agent.message("assistant", "Ada."))
    lines = [opened(), *agent.end()]
    assert [(row.agent, row.sequence, row.n_sequences) for row in group_of(lines).sft] == [("sub", 0, 2), (None, 1, 2)]
    dropped = group_of(lines, config=EmissionConfig(subagents="drop"))
    assert [row.sequence for row in dropped.sft] == [1]
    assert reasons(dropped) == [("subagent", "sequence:0")]


def test_reasoning_is_dropped_when_asked() -> None:
    agent = chat()
    agent.ask(agent.context, agent.message("assistant", "Ada.", reasoning="who am I"))
    lines = [opened(), *agent.end()]
    assert group_of(lines).sft[0].messages[-1].reasoning_content == "who am I"
    assert group_of(lines, config=EmissionConfig(reasoning="drop")).sft[0].messages[-1].reasoning_content is None


def test_pairs_part_before_a_message_that_both_sides_said() -> None:
    """An assistant message that one side was given and the other said belongs to the prompt."""
    said, told = ChatAgent(branch=0), ChatAgent(branch=1)
    ask, first = said.message("user", "hi"), said.message("assistant", "hello")
    call = said.ask([ask], first)
    said.ask([ask, first, said.message("user", "name?")], said.message("assistant", "Ada."), call)
    context = [told.message("user", "hi"), told.message("assistant", "hello"), told.message("user", "name?")]
    told.ask(context, told.message("assistant", "Bob."))
    (row,) = group_of([opened(2), *said.end(), *told.end(passes=False)]).dpo
    assert [(message.content, message.trained) for message in row.prompt] == [
        ("hi", None),
        ("hello", False),
        ("name?", None),
    ]
    assert [message.content for message in (*row.chosen, *row.rejected)] == ["Ada.", "Bob."]


def test_a_side_that_names_the_tools_of_the_rollout_was_offered_the_same() -> None:
    tools = [{"type": "function", "function": {"name": "r", "parameters": {}}}]
    one, other = ChatAgent(branch=0), ChatAgent(branch=1)
    one.ask([one.message("user", "hi")], one.message("assistant", "Ada."))
    other.ask([other.message("user", "hi")], other.message("assistant", "Bob."), tools=tools)
    assert len(group_of([opened(2, tools=tools), *one.end(), *other.end(passes=False)]).dpo) == 1


def test_an_empty_prompt_keeps_a_row_out() -> None:
    agent = ChatAgent()
    agent.ask([agent.message("user", " \u200b")], agent.message("assistant", "hello"))
    assert reasons(group_of([opened(), *agent.end()])) == [("empty_prompt",)]


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": " "}, {"type": "text", "text": ""}]])
def test_parts_of_which_a_reader_sees_nothing_are_an_empty_prompt(content: list[Any]) -> None:
    agent = ChatAgent()
    agent.ask([agent.message("user", content)], agent.message("assistant", "Hello."))
    assert reasons(group_of([opened(), *agent.end()])) == [("empty_prompt",)]


@pytest.mark.parametrize("said", [{"content": ""}, {"content": None, "reasoning": "Hm."}])
def test_a_sequence_in_which_nothing_was_said_is_in_no_row(said: dict[str, Any]) -> None:
    agent = ChatAgent()
    task = agent.message("user", "hi")
    agent.ask([task], agent.message("assistant", **said))
    agent.ask([task], agent.message("assistant", "Hello."))
    group = group_of([opened(), *agent.end()])
    assert [row.sequence for row in (*group.sft, *group.ppo)] == [1, 1]
    assert reasons(group) == reasons(group, "ppo") == [("empty_completion", "sequence:0")]


def test_secrets_leave_messages_reasoning_and_arguments() -> None:
    secret = "sk-proj-" + "a1B2" * 12
    agent = ChatAgent()
    call = {"id": "t", "name": "read_file", "arguments": f'{{ "key": "{secret}", "n": 1 }}'}
    ask = [agent.message("user", [{"type": "text", "text": "use "}, {"type": "text", "text": secret}])]
    agent.ask(ask, agent.message("assistant", f"with {secret}", reasoning=f"hm {secret}", tool_calls=[call]))
    group = group_of([opened(), *agent.end()])
    text = "".join(record.model_dump_json() for record in (*group.ppo, *group.branches))
    assert secret not in text
    assert "REDACTED" in text
    assert group.ppo[0].redactions


def test_arguments_stay_as_the_model_wrote_them() -> None:
    agent = chat()
    written = '{"path":  "ü.py", "n": 1.0}'
    agent.ask(
        agent.context,
        agent.message("assistant", None, tool_calls=[{"id": "t", "name": "read_file", "arguments": written}]),
    )
    (row,) = group_of([opened(), *agent.end()]).ppo
    assert row.completion[0].tool_calls[0].function.arguments == written


def test_media_are_referred_to() -> None:
    agent = ChatAgent()
    image = {"type": "image", "digest": "e" * 64, "media_type": "image/png", "bytes": 9}
    ask = agent.message("user", [{"type": "text", "text": "what is "}, image, {"type": "text", "text": "this?"}])
    agent.ask([ask], agent.message("assistant", "a cat"))
    (row,) = group_of([opened(), *agent.end()]).sft
    assert row.messages[0].content == "what is this?"
    assert row.messages[0].parts is not None
    assert "e" * 64 in row.messages[0].parts


def test_a_run_of_many_turns_is_one_sequence() -> None:
    agent = chat()
    context, after = agent.context, None
    for turn in range(500):
        answer = agent.message("assistant", f"turn {turn}")
        after = agent.ask(context, answer, after)
        context = [*context, answer, agent.message("user", "on")]
    (row,) = group_of([opened(), *agent.end()]).sft
    assert sum(message.trained or False for message in row.messages) == 500
    assert len("".join(map(str, agent.lines))) < 500 * 1000


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("message", {"role": "user", "content": "x" * MAX_MESSAGE_BYTES}),
        ("message", {"role": "narrator"}),
        ("message", {"role": "tool", "content": "x"}),
        ("message", {"role": "user", "content": [{"type": "image"}]}),
        ("model_call", {"call_id": "k2"}),
        ("model_call", {"call_id": "k2", "context": {}, "response": "m-2", "error": {"kind": "cut"}}),
    ],
)
def test_a_bad_event_of_a_producer_on_kafka_keeps_its_branch_out(kind: str, data: dict[str, Any]) -> None:
    """It is not checked before it is written. Under version 1 such names were unknown kinds, and stay so."""
    agent = chat()
    agent.ask(agent.context, agent.message("assistant", "Ada."))
    bad = AgentEvent(channel="conversation", event=kind, data=compact(data))
    reader, slicer = LineReader(), Slicer()
    lines = [opened(), *agent.end()]
    facts = [ready for line in lines for fact in reader.read(compact(line)) for ready in slicer.add(fact)]
    seq = len(agent.lines)
    late = AgentEvents(rollout_id="r", branch_index=0, first_seq=seq, events=(bad,))
    facts = [
        late,
        *[
            fact if not isinstance(fact, AgentEvents) or not fact.ended else fact.model_copy(update={"last_seq": seq})
            for fact in facts
        ],
    ]
    group = group_of_facts([*facts, *slicer.flush()])
    assert reasons(group) == [("not_representable", "bad_event")]
    assert group_of_facts([*facts, *slicer.flush()], config=EmissionConfig(version=1)).branches[0].n_events == seq + 1


def test_a_bad_last_event_leaves_a_gap() -> None:
    agent = ChatAgent()
    agent.ask([agent.message("user", "hi")], agent.message("assistant", "Hello."))
    reader, bad = LineReader(), {"event": "model_call", "data": {"call_id": "k2", "context": "all"}}
    *events, end, _ = agent.end()
    facts = [fact for line in events for fact in reader.read_object(line)]
    with pytest.raises(LineError):
        reader.read_object(events[-1] | {"event": bad})
    (ended,) = reader.read_object(end)
    assert isinstance(ended, AgentEvents)
    assert ended.last_seq == len(facts)


def repeated(size: int, depth: int, times: int) -> ChatAgent:
    """A context that is long once, and named again by many calls that are short."""
    agent = ChatAgent()
    context = [agent.message("user", "x" * size) for _ in range(depth)]
    call = agent.ask(context, agent.message("assistant", "a"))
    for number in range(times):
        answer = agent.message("assistant", f"a{number}")
        again = {"after": call, "keep": depth, "add": []}
        agent.event("model_call", {"call_id": f"z{number}", "context": again, "response": answer})
    return agent


@pytest.mark.parametrize(("size", "depth", "times"), [(200_000, 10, 40), (1, 1000, 120)])
def test_a_long_context_that_is_named_many_times_makes_no_rows(size: int, depth: int, times: int) -> None:
    """A few kilobytes of calls must not become gigabytes of rows."""
    group = group_of([opened(), *repeated(size, depth, times).end()])
    assert reasons(group) == [("not_representable", "too_many_messages")]
    assert not group.ppo


def test_many_answers_to_one_context_are_rows() -> None:
    group = group_of([opened(), *repeated(1000, 20, 50).end()])
    assert len(group.ppo) == 51


def test_content_that_is_neither_text_nor_media_is_in_no_row() -> None:
    agent = ChatAgent()
    found = agent.message("user", [{"type": "text", "text": "Look"}, {"type": "other", "digest": "e" * 64}])
    agent.ask([found], agent.message("assistant", "I see."))
    group = group_of([opened(), *agent.end()])
    assert group.sft == ()
    assert reasons(group) == [("not_representable", "other_content")]


@pytest.mark.parametrize("title_comes", ["first", "last"])
def test_the_main_conversation_is_the_one_with_tools_whenever_a_title_comes(title_comes: str) -> None:
    agent = ChatAgent()

    def name_it() -> None:
        agent.ask([agent.message("user", "Give it a title.")], agent.message("assistant", "A title"), tools=[])

    def work() -> None:
        agent.ask([agent.message("user", "Do it.")], agent.message("assistant", "Done."), tools=[{"name": "look"}])

    for step in (name_it, work) if title_comes == "first" else (work, name_it):
        step()
    group = group_of([opened(), *agent.end()])
    (main,) = [row for row in group.sft if row.main]
    assert [message.content for message in main.messages] == ["Do it.", "Done."]
    assert group.branches[0].final_answer == "Done."


def test_without_any_tools_the_main_conversation_is_the_one_with_the_last_response() -> None:
    agent = ChatAgent()
    for text in ("One", "Two"):
        agent.ask([agent.message("user", text)], agent.message("assistant", f"{text}."))
    (main,) = [row for row in group_of([opened(), *agent.end()]).sft if row.main]
    assert main.messages[0].content == "Two"
