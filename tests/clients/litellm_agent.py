"""An agent on LiteLLM: it changes its list of messages right after each call. Run in an environment with litellm."""

import asyncio
import contextlib
import os
import sys

import litellm
from braidstream import Braid
from braidstream.litellm_callback import BraidCallback

OPTIONS = {"model": "openai/m", "api_base": sys.argv[1], "api_key": "k", "temperature": 0.5, "num_retries": 0}
TURNS = int(sys.argv[2])


def turns(stream: bool) -> list[dict]:
    messages = [{"role": "user", "content": "go"}]
    for number in range(TURNS):
        answer = litellm.completion(messages=messages, stream=stream, **OPTIONS)
        said = (
            "".join(chunk.choices[0].delta.content or "" for chunk in answer)
            if stream
            else answer.choices[0].message.content
        )
        messages.append({"role": "assistant", "content": said})
        messages.append({"role": "user", "content": f"and {number}?"})
    return messages


async def many(branch: int) -> None:
    async def ask(number: int) -> None:
        await litellm.acompletion(messages=[{"role": "user", "content": f"{branch} asks {number}"}], **OPTIONS)

    await asyncio.gather(*(ask(number) for number in range(TURNS)))
    with contextlib.suppress(litellm.InternalServerError):
        await litellm.acompletion(messages=[{"role": "user", "content": "fail"}], **OPTIONS)


async def asynchronous(rollout) -> None:
    async def one(branch: int) -> None:
        async with rollout.branch(branch):
            await many(branch)

    await asyncio.gather(one(2), one(3))


def main() -> None:
    litellm.callbacks = [BraidCallback()]
    rollout = Braid(os.environ["BRAID_URL"]).rollout("r")
    for branch, stream in ((0, False), (1, True)):
        with rollout.branch(branch):
            turns(stream)
    asyncio.run(asynchronous(rollout))


if __name__ == "__main__":
    main()
