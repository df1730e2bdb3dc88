"""The form in which the model sees a tool's output: exactly the text that will be trained on. The same code makes both."""

from collections.abc import Callable

from agents.summarize.event_reader import keep
from agents.summarize.output import shorten
from agents.summarize.pieces import Result
from agents.training.messages import tool_content
from schemas.branches import BranchCall, ToolFailure
from schemas.emission import SummaryLimits
from schemas.events import AgentEvent


def observed(
    result: AgentEvent, tool: str, limits: Callable[[str], SummaryLimits], *, redacting: bool
) -> tuple[str, bool]:
    """The content of the tool message for a `tool_result` event, and whether it is an error."""
    body = keep(result, redacting=redacting)
    assert isinstance(body, Result)
    failure = None
    if body.error_message is not None:
        failure = ToolFailure(code=body.error_code, message=body.error_message)
    seen = BranchCall(
        call_id="-",
        name=tool,
        arguments="{}",
        arguments_digest="",
        output_summary=None if body.output is None else shorten(body.output, limits(tool)),
        output_digest=body.output_digest,
        error=failure,
    )
    return tool_content(seen), failure is not None
