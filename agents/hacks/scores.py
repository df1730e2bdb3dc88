"""Agreement of signals with labels: precision and recall by family and class, with Wilson intervals."""

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any, NamedTuple

Z = 1.959964
"""The normal quantile of a 95 % interval."""


class Labelled(NamedTuple):
    """A branch with its label and its findings."""

    label: str
    """`honest`, or the family of the cheat, such as T5."""
    provable: bool
    status: str
    families: frozenset[str]


class Share(NamedTuple):
    """A share with its interval."""

    hits: int
    of: int

    def as_json(self) -> dict[str, Any]:
        """Return the share as JSON; null if the denominator is 0."""
        low, high = wilson(self.hits, self.of)
        value = None if not self.of else round(self.hits / self.of, 4)
        return {"hits": self.hits, "of": self.of, "share": value, "low": low, "high": high}


def wilson(hits: int, of: int) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a share."""
    if not of:
        return None, None
    share, square = hits / of, Z * Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = Z * sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    return round(max(0.0, middle - half), 4), round(min(1.0, middle + half), 4)


def scores(found: Sequence[Labelled]) -> dict[str, Any]:
    """Return recall and precision by class and family."""
    cheats = [each for each in found if each.label != "honest"]
    honest = [each for each in found if each.label == "honest"]
    confirmed = [each for each in found if each.status == "confirmed"]
    flagged = [each for each in found if each.status in ("confirmed", "suspected")]
    families = sorted({each.label for each in cheats})
    return {
        "cheats_flagged": _share(cheats, flagged),
        "provable_confirmed": _share([each for each in cheats if each.provable], confirmed),
        "honest_confirmed": _share(honest, confirmed),
        "honest_flagged": _share(honest, flagged),
        "right_family": Share(sum(each.label in each.families for each in cheats if each in flagged), sum(each in flagged for each in cheats)).as_json(),
        "precision_confirmed": _share(confirmed, cheats),
        "precision_flagged": _share(flagged, cheats),
        "families": {
            family: {
                "recall": _share([each for each in cheats if each.label == family], [each for each in flagged if family in each.families]),
                "precision": _share([each for each in flagged if family in each.families], [each for each in cheats if each.label == family]),
            }
            for family in families
        },
    }  # fmt: skip


def _share(among: Sequence[Labelled], hits: Iterable[Labelled]) -> dict[str, Any]:
    wanted = {id(each) for each in hits}
    return Share(sum(id(each) in wanted for each in among), len(among)).as_json()
