"""Topics by a part of their name: `dpo`, `evidence`, `votes`."""

from streams.log.reader import LookError
from streams.log.topics import BY_NAME, Topic


def find_topic(text: str, prefix: str = "") -> Topic:
    """The declared topic of this name, with or without the prefix, or the only one that contains it. Raises LookError."""
    bare = text.removeprefix(prefix) if prefix else text
    if bare in BY_NAME:
        return BY_NAME[bare]
    found = [name for name in BY_NAME if bare and bare.lower() in name]
    if len(found) == 1:
        return BY_NAME[found[0]]
    if found:
        raise LookError(f"{text!r} is part of several topics, say which: {', '.join(found)}")
    raise LookError(f"there is no topic {text!r}; the topics are: {', '.join(BY_NAME)}")
