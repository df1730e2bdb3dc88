"""Matches the rows of a branch with its transcript: which turns are trained on, and the outputs that a row shortens."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from schemas.training import DpoRecord, Message, PpoRecord, SftRecord
from streams.views.web.sight import Row, Sight
from streams.views.web.turns import ShownCall, Turn

Key = tuple[str, tuple[str, ...]]
"""Words and calls of a message of the model."""


class Trained:
    """Looks turns and outputs up in the rows of one branch."""

    def __init__(self, sight: Sight, branch: int) -> None:
        self._kinds: dict[Key, list[str]] = {}
        self._against: dict[Key, list[str]] = {}
        """The same on the rejected side of a preference row."""
        self._tools: set[str] = set()
        self._held: Counter[Key] = Counter()
        """How often a row has words and calls of the model, as something to learn or before it."""
        self._outputs: dict[tuple[int, int], str] = {}
        rows = sight.rows_of(branch)
        strand = sight.strand(branch)
        self._keys = [_key_of(turn) for turn in strand.transcript.turns] if strand is not None else []
        self._said = Counter(self._keys)
        for row in rows:
            messages = _messages(row, branch)
            self._tools |= {message.content for message in messages if message.role == "tool" and message.content}
            self._held |= Counter(_key(message) for message in messages if message.role == "assistant")
            self._note(row, branch)
            if strand is not None and not self._outputs:
                self._outputs = _aligned(strand.transcript.turns, messages)
        self.told = (
            "Each turn says in which rows it is trained on, and shows outputs that a row has in another form."
            if rows
            else "No row was made of it."
        )
        self._any = bool(rows)

    def _note(self, row: Row, branch: int) -> None:
        """Note whether a trainer learns from the row towards the branch, or away from it on the rejected side of a
        pair.
        """
        kind = type(row).__name__.removesuffix("Record").upper()
        rejected = isinstance(row, DpoRecord) and row.rejected_branch == branch
        for message in _learned(row, branch):
            if message.role == "assistant" and message.trained is not False:
                kinds = (self._against if rejected else self._kinds).setdefault(_key(message), [])
                kinds += [] if kind in kinds else [kind]

    def rows(self, turn: Turn) -> str | None:
        """The rows that train on the model's words and calls of a turn, or reject them; None if there are no rows at
        all.
        """
        if not self._any:
            return None
        kinds, against = self._found(self._kinds, turn), self._found(self._against, turn)
        told = (
            f"trained on: {', '.join(kinds)}" if kinds else "",
            f"rejected in: {', '.join(against)}" if against else "",
        )
        return " · ".join(filter(None, told)) or "not trained on"

    @staticmethod
    def _found(noted: Mapping[Key, list[str]], turn: Turn) -> list[str]:
        """The kinds of rows that have a turn's words and calls."""
        names = tuple(call.name for call in turn.calls if call.paired)
        said = (
            turn.text or (turn.ending.text if turn.ending is not None and turn.ending.kind == "answer" else "")
        ).strip()
        kinds = noted.get((said, names)) or []
        if not kinds and turn.text and turn.ending is not None:
            kinds = noted.get((turn.ending.text.strip(), names)) or []
        return kinds

    def differs(self, turn: Turn, call: ShownCall) -> bool:
        """Whether a row has the turn with another output than the one that is shown."""
        if not call.paired or call.output in (None, "") or call.output in self._tools:
            return False
        key = self._keys[turn.number]
        return 0 < self._said[key] <= self._held[key]

    def output(self, turn: Turn, number: int) -> str | None:
        """The output of a call in a row; None if rows cannot be matched with turns."""
        return self._outputs.get((turn.number, number))


def _messages(row: Row, branch: int) -> Sequence[Message]:
    if isinstance(row, SftRecord):
        return row.messages
    if isinstance(row, PpoRecord):
        return [*row.prompt, *row.completion]
    assert isinstance(row, DpoRecord)
    return [*row.prompt, *(row.chosen if row.chosen_branch == branch else row.rejected)]


def _learned(row: Row, branch: int) -> Sequence[Message]:
    """The messages of a row that a trainer may learn from; a prompt is only context."""
    return _messages(row, branch)[len(_prompt(row)) :]


def _prompt(row: Row) -> Sequence[Message]:
    return () if isinstance(row, SftRecord) else row.prompt


def _key(message: Message) -> Key:
    return (message.content or "").strip(), tuple(call.function.name for call in message.tool_calls)


def _key_of(turn: Turn) -> Key:
    return turn.text.strip(), tuple(call.name for call in turn.calls if call.paired)


def _aligned(turns: Sequence[Turn], messages: Sequence[Message]) -> dict[tuple[int, int], str]:
    """Outputs of a row by turn and call; empty if the row does not have exactly the calls of the turns, in their order."""
    calls = [
        (turn.number, number, call.name) for turn in turns for number, call in enumerate(turn.calls) if call.paired
    ]
    said = list(_answered(messages))
    if [name for _, _, name in calls] != [name for name, _ in said]:
        return {}
    return {(turn, number): text for (turn, number, _), (_, text) in zip(calls, said, strict=True) if text is not None}


def _answered(messages: Sequence[Message]) -> Iterator[tuple[str, str | None]]:
    """The calls of a row with their outputs."""
    outputs = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    for message in messages:
        for call in message.tool_calls:
            yield call.function.name, outputs.get(call.id)
