"""Captures without the texts of products and the paths of a machine, so that a run of real agents can be kept as a sample.

Prompts, reminders and descriptions of tools become `[removed: product text]` with a few digits of their digest: texts that differ
still do. Tasks, answers, calls, results and everything else stay. Requests are told as differences anew.
"""

import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import orjson

from agents.capture.protocol import HISTORY
from agents.capture.request_delta import Expander, shrink
from schemas.captures import Capture
from schemas.jsontext import compact

PRODUCT = re.compile(
    r"^\s*<(system-reminder|session|skills_instructions|permissions instructions|collaboration_mode|apps_instructions)"
)
GIVEN = ("system", "developer")
KEPT = (
    "id",
    "type",
    "role",
    "content",
    "call_id",
    "name",
    "arguments",
    "input",
    "output",
    "summary",
    "encrypted_content",
    "status",
)
"""Fields of input items that say something; the rest are ids of turns and times."""


def removed(text: str) -> str:
    """The text that stands for one of a product."""
    return f"[removed: product text] {sha256(text.encode()).hexdigest()[:6]}"


def without_product_text(captures: Iterable[Capture], folder: str) -> list[Capture]:
    """Return the captures of branches, in their order; `folder` is the path that becomes /workspace."""
    expanders: dict[tuple[str, int, int], tuple[Expander, set[bytes]]] = {}
    made = []
    for capture in captures:
        if capture.kind != "call":
            made.append(capture)
            continue
        branch = (capture.rollout_id, capture.branch_index, capture.attempt)
        expander, known = expanders.setdefault(branch, (Expander(), set()))
        body = orjson.loads(capture.body)
        whole = expander.expand(body["request"])
        history = HISTORY[body["protocol"]]
        request = whole.fields | ({} if whole.history is None else {history: [place.item for place in whole.history]})
        shrunk = shrink(_moved(_request(request, history), folder), history, known)
        known.update(shrunk.digests)
        body |= {"request": shrunk.delta, "response": _moved(_response(body.get("response")), folder)}
        plain = compact({name: value for name, value in body.items() if value is not None})
        made.append(capture.model_copy(update={"body": plain.encode()}))
    return made


def _moved(value: Any, folder: str) -> Any:
    return orjson.loads(orjson.dumps(value).replace(folder.encode(), b"/workspace"))


def _request(request: dict[str, Any], history: str) -> dict[str, Any]:
    clean = {
        name: value for name, value in request.items() if name not in ("metadata", "client_metadata", "output_config")
    }
    if "tools" in clean:
        clean["tools"] = [_tool(tool) for tool in clean["tools"]]
    if "system" in clean:
        clean["system"] = _texts(clean["system"], removed)
    if clean.get("instructions"):
        clean["instructions"] = removed(clean["instructions"])
    clean[history] = [_message(item) for item in clean[history]]
    return clean


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name in ("type", "name")} | {
        "description": removed(compact(tool))
    }


def _message(item: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in item.items() if name in KEPT}
    if item.get("role") in GIVEN:
        return kept | {"content": _texts(item["content"], removed)}
    if item.get("role") == "user":
        return kept | {"content": _texts(item["content"], lambda text: removed(text) if PRODUCT.match(text) else text)}
    return kept


def _texts(content: Any, change: Callable[[str], str]) -> Any:
    """A content with its texts changed."""
    if isinstance(content, str):
        return change(content)
    return [part | {"text": change(part["text"])} if "text" in part else part for part in content]


def _response(response: Any) -> Any:
    """A response without what it says of the request again."""
    return (
        None
        if response is None
        else {name: value for name, value in response.items() if name not in ("tools", "instructions")}
    )
