"""Record every call of LiteLLM in a branch, for agents that cannot use the proxy.

    import litellm
    from braidstream.litellm_callback import BraidCallback

    litellm.callbacks = [BraidCallback()]                 # once
    with rollout.branch(0) as run:
        litellm.completion(model="...", messages=[...])   # a call of the branch in whose block it is made

LiteLLM reports calls from threads, after they returned. The callback copies each request before it is sent, writes the calls of a branch in
the order in which they began, and lets the end of the branch wait for reports that are still to come;
asynchronous code uses `async with`.
A thread that the agent starts belongs to no branch, unless it is started with `contextvars.copy_context().run`.
"""

from __future__ import annotations

import copy
import functools
import threading
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from braidstream.tracer import Run, current_run

CALLS = frozenset({"completion", "acompletion", "text_completion", "atext_completion"})
PRIVATE = frozenset({"api_key", "api_base", "base_url", "headers", "extra_headers", "max_retries", "metadata"})


class BraidCallback(CustomLogger):  # type: ignore[misc]
    """Calls of every branch; one is enough for a process."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._begun: dict[str, dict[str, Any]] = {}
        """Calls that are not written yet, in the order in which they began."""

    def log_pre_api_call(self, model: str, messages: Any, kwargs: dict[str, Any]) -> None:
        """Copy the request: the agent may append to its messages before LiteLLM reports the call."""
        run = current_run()
        if run is None or run.ended or kwargs.get("call_type") not in CALLS:
            return
        options = {name: value for name, value in kwargs.get("optional_params", {}).items() if name not in PRIVATE}
        request = copy.deepcopy({"model": model, "messages": messages, **options})
        with self._changed:
            self._begun[kwargs["litellm_call_id"]] = {"run": run, "request": request}
            run.before_end.setdefault(self, functools.partial(self._wait, run))

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Note a response."""
        self._note(kwargs, start_time, end_time, response=response_obj)

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:  # noqa: ARG002
        """Note a failure."""
        self._note(kwargs, start_time, end_time, error=kwargs.get("exception") or "failed")

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Note a response."""
        self.log_success_event(kwargs, response_obj, start_time, end_time)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Note a failure."""
        self.log_failure_event(kwargs, response_obj, start_time, end_time)

    def _wait(self, run: Run, timeout_s: float) -> None:
        """Wait until every call of a run was reported; calls without a report are written as failed."""
        with self._changed:
            self._changed.wait_for(lambda: all(call["run"] is not run for call in self._begun.values()), timeout_s)
            for call in self._begun.values():
                if call["run"] is run:
                    call.setdefault("told", {"error": "LiteLLM did not report it"})
            self._write(run)

    def _note(self, kwargs: dict[str, Any], began: Any, ended: Any, **told: Any) -> None:
        with self._changed:
            call = self._begun.get(kwargs.get("litellm_call_id", ""))
            if call is not None:
                times = {"started_ms": began.timestamp() * 1000, "latency_ms": (ended - began).total_seconds() * 1000}
                call.setdefault("told", {**told, **times})
                self._write(call["run"])

    def _write(self, run: Run) -> None:
        """Write the calls of a run that were reported, up to the first that was not."""
        for name, call in [each for each in self._begun.items() if each[1]["run"] is run]:
            if "told" not in call:
                break
            run.model_call(call["request"], protocol="openai-chat", **call["told"])
            del self._begun[name]
        self._changed.notify_all()
