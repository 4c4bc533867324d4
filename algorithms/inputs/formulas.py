"""Formulas over the package formulaic, and the effects of groups in them, ``(x | group)``."""

import warnings
from dataclasses import dataclass

from ...errors import DataError, StradaskError, in_brief, shortened


def formulaic(remedy):
    """Import formulaic; `remedy` ends the error where it is not installed."""
    try:
        import formulaic
    except ModuleNotFoundError as error:
        raise StradaskError(
            f"formula needs formulaic, which is not installed: pip install formulaic; or {remedy}"
        ) from error
    return formulaic


def evaluated(evaluate, formula, what, remedy):
    """Return what ``evaluate()`` makes; a category that the fit had not is an error, not the reference.

    `what` begins the message of the DataError; for `remedy` see `formulaic`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", formulaic(remedy).errors.DataMismatchWarning)
            return evaluate()
    except StradaskError:
        raise
    except Exception as error:
        raise DataError(
            f"{what} do not fit formula={shortened(formula)}: {in_brief(str(error), 200)}"
        ) from error


@dataclass(frozen=True)
class GroupTerm:
    """Effects of groups: the columns that vary by group, the columns whose levels are the groups.

    Groups of several `factors` are their combinations. `correlated` is false after ``||``.
    """

    effects: str
    factors: tuple[str, ...]
    correlated: bool = True

    @property
    def name(self):
        """Name of the groups: ``"subject"``, ``"class:school"``."""
        return ":".join(self.factors)


def split_formula(formula):
    """Split ``y ~ x + (x | group)`` into the target, the fixed part, and a list of `GroupTerm`.

    ``(x || group)`` has no correlations, ``a:b`` are combinations of two columns, ``a/b`` are a and ``a:b``.

    >>> from stradask.algorithms.inputs.formulas import split_formula
    >>> split_formula("y ~ x + (1 + x | school)")
    ('y', 'x', [GroupTerm(effects='1 + x', factors=('school',), correlated=True)])
    """
    if not isinstance(formula, str):
        raise DataError(f"formula must be text such as 'y ~ x + (x | group)', got {shortened(formula)}")
    sides = formula.split("~")
    if len(sides) != 2 or not sides[0].strip():
        raise DataError(
            f"formula={shortened(formula)} must have a target on the left of one ~: 'y ~ x + (x | group)'"
        )
    fixed: list[str] = []
    terms: list[GroupTerm] = []
    for sign, piece in _summands(sides[1], formula):
        inner = piece[1:-1] if piece.startswith("(") and piece.endswith(")") else ""
        if "|" not in inner:
            if "|" in piece:
                raise DataError(
                    f"formula={shortened(formula)}: put parentheses around {shortened(piece)}, as in "
                    "(x | group)"
                )
            fixed.append(f"{sign} {piece}" if fixed or sign == "-" else piece)
        elif sign == "-":
            raise DataError(f"formula={shortened(formula)} takes {piece} off: leave it out")
        else:
            terms += _group_terms(inner, formula)
    names = [term.name for term in terms]
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"formula={shortened(formula)} has two terms of the groups {name}: join them, as in "
                f"(x + z | {name}), or (x + z || {name}) without correlations"
            )
    return sides[0].strip(), " ".join(fixed) or "1", terms


def _summands(text, formula):
    """Pairs (sign, summand) of a sum, parentheses kept together."""
    found, depth, sign, start = [], 0, "+", 0
    for place, letter in enumerate([*text, "+"]):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            break
        if depth == 0 and letter in "+-":
            piece = text[start:place].strip()
            if piece:
                found.append((sign, piece))
            elif place < len(text) and start:
                raise DataError(f"formula={shortened(formula)} has two signs in a row")
            sign, start = letter, place + 1
    if depth:
        raise DataError(f"formula={shortened(formula)} has a parenthesis without its other half")
    return found


def _group_terms(inner, formula):
    correlated = "||" not in inner
    parts = [part.strip() for part in inner.split("|" if correlated else "||")]
    if len(parts) != 2 or not all(parts):
        raise DataError(
            f"formula={shortened(formula)}: ({inner}) must be (columns | group), such as (1 | group)"
        )
    nested = [level.strip() for level in parts[1].split("/")]
    groups = [[name.strip() for name in level.split(":")] for level in nested]
    factors = [tuple(name for level in groups[: i + 1] for name in level) for i in range(len(groups))]
    if not all(name.isidentifier() for factor in factors for name in factor):
        raise DataError(
            f"formula={shortened(formula)}: the groups {shortened(parts[1])} must be names of columns, a:b "
            "for the combinations of two, or a/b for b within a"
        )
    return [GroupTerm(parts[0], factor, correlated) for factor in factors]
