"""Equations in a model's text: `a op b .. = c`, recomputed in exact fractions.

A part of a longer expression is not an equation. At most `MOST_OPERATORS` operators are read, so that hostile texts
cost linear time.
"""

import re
from fractions import Fraction
from typing import Final, NamedTuple

from agents.audit.number_text import LONGEST_VALUE, value_of

MOST_OPERATORS: Final = 200

_TERM: Final = r"[-\u2212]?[$€£]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?%?"
_OPERATOR: Final = r"[-+*/×÷\u2212]"
_EQUATION: Final = re.compile(
    rf"(?<![\w.,)%*/+=×÷-])(?<![-+*/×÷\u2212=(] )({_TERM}(?:\s*{_OPERATOR}\s*{_TERM}){{1,{MOST_OPERATORS}}})\s*=\s*({_TERM})"
    rf"(?![\w%]|[.,]\d|\s*{_OPERATOR}\s*[\d$(])"
)
_FIRST: Final = re.compile(_TERM)
_REST: Final = re.compile(rf"\s*({_OPERATOR})\s*({_TERM})")


class Equation(NamedTuple):
    """One equation as it was written."""

    operands: tuple[Fraction, ...]
    operators: tuple[str, ...]
    """The operators between the operands."""
    claimed: Fraction
    unit: Fraction | None
    """One unit of the claim's last decimal place; None if it has no decimals."""


def equations(text: str) -> list[Equation]:
    """The equations of a plain text, in order."""
    found = []
    for match in _EQUATION.finditer(text):
        claimed = _term(match[2])
        operands, operators = _parts(match[1])
        if claimed is not None and None not in operands:
            known = tuple(value for value in operands if value is not None)
            found.append(Equation(known, operators, claimed, _unit(match[2])))
    return found


def repaired(text: str, expected: Fraction) -> bool:
    """Whether some equation is wrong, and correcting all equations and their later uses makes the last one give the
    expected answer.
    """
    right: dict[Fraction, Fraction] = {}
    last: Fraction | None = None
    some_wrong = False
    for equation in equations(text):
        operands = tuple(right.get(value, value) for value in equation.operands)
        real = evaluated(operands, equation.operators)
        if real is None:
            continue
        is_wrong = not is_right(equation, real)
        some_wrong = some_wrong or is_wrong
        if is_wrong or (operands != equation.operands and real != equation.claimed):
            right[equation.claimed] = real
        last = real
    return some_wrong and last == expected


def evaluated(operands: tuple[Fraction, ...], operators: tuple[str, ...]) -> Fraction | None:
    """Return the value with the usual precedence; None on a division by zero."""
    terms = [operands[0]]
    for operator, value in zip(operators, operands[1:], strict=True):
        if operator in "*×":
            terms[-1] *= value
        elif operator in "/÷":
            if value == 0:
                return None
            terms[-1] /= value
        else:
            terms.append(value if operator == "+" else -value)
    return sum(terms, Fraction(0))


def is_right(equation: Equation, real: Fraction) -> bool:
    """Whether an equation is right within one unit of its last decimal place. A result without decimals may be
    rounded.
    """
    allowed = equation.unit
    if allowed is None:
        allowed = Fraction(0) if real.denominator == 1 else Fraction(1, 2)
    return abs(real - equation.claimed) <= allowed


def _parts(text: str) -> tuple[list[Fraction | None], tuple[str, ...]]:
    """Return the operands of an expression and the operators between them. A sign of the first operand is not an
    operator.
    """
    first = _FIRST.match(text)
    assert first is not None
    rest = list(_REST.finditer(text, first.end()))
    return [_term(first[0]), *(_term(part[2]) for part in rest)], tuple(part[1] for part in rest)


def _term(text: str) -> Fraction | None:
    value = value_of(text)
    return value / 100 if value is not None and text.endswith("%") else value


def _unit(text: str) -> Fraction | None:
    bare = text.removesuffix("%")
    _, dot, decimals = bare.partition(".")
    if not dot or len(decimals) > LONGEST_VALUE:
        return None
    unit = Fraction(1, 10 ** len(decimals))
    return unit / 100 if text.endswith("%") else unit
