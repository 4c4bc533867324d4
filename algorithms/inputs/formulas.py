"""Formulas over the package formulaic, and the effects of groups in them, ``(x | group)``."""

import re
import warnings
from dataclasses import dataclass, replace

from ...errors import DataError, StradaskError, in_brief, shortened

_MOST_TERMS = 100  # of groups, which are compared with one another; a/b/c are three


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


def with_used_levels(frame):
    """A frame whose categories have no levels but those of its rows: others would be columns of zeros."""
    kinds = list(getattr(frame, "dtypes", ()))
    columns = [j for j, kind in enumerate(kinds) if hasattr(kind, "categories") and hasattr(kind, "ordered")]
    frame = frame.copy(deep=False) if columns else frame
    for j in columns:
        frame.isetitem(j, frame.iloc[:, j].cat.remove_unused_categories())
    return frame


@dataclass(frozen=True)
class GroupTerm:
    """Effects of groups: the columns that vary by group, the columns whose levels are the groups.

    Groups of several `factors` are their combinations. `correlated` is false after ``||``. A second term of
    the same groups has the number 1, a third one 2. `joined` are the terms of one column each that were
    joined to this one.
    """

    effects: str
    factors: tuple[str, ...]
    correlated: bool = True
    number: int = 0
    joined: tuple[str, ...] = ()

    @property
    def groups(self):
        """Name of the groups: ``"subject"``, ``"class:school"``."""
        return ":".join(self.factors)

    @property
    def name(self):
        """Name of the term: that of the groups, of a second term of these ``"subject.1"``."""
        return self.groups + (f".{self.number}" if self.number else "")


@dataclass(frozen=True)
class FormulaParts:
    """Parts of a formula: target, trials (``k | trials(n)``), columns, offset, terms of groups.

    `trials` and `offset` are Python expressions of columns, or empty.
    """

    target: str
    fixed: str
    terms: tuple[GroupTerm, ...] = ()
    trials: str = ""
    offset: str = ""


def split_formula(formula):
    """Split ``y ~ x + (x | group)`` into `FormulaParts`.

    ``(x || group)`` has no correlations, ``a:b`` are combinations of two columns, ``a/b`` are a and ``a:b``.
    ``offset(e)`` is added to the predictor. ``(1 | g) + (0 + x | g)`` is ``(1 + x || g)``. The target of
    ``k | trials(n)`` and of ``cbind(k, n - k)`` is k, of n trials.

    >>> from stradask.algorithms.inputs.formulas import split_formula
    >>> split_formula("y ~ x + (1 + x | school)").terms
    (GroupTerm(effects='1 + x', factors=('school',), correlated=True, number=0, joined=()),)
    """
    if not isinstance(formula, str):
        raise DataError(f"formula must be text such as 'y ~ x + (x | group)', got {shortened(formula)}")
    sides = formula.split("~")
    if len(sides) != 2 or not sides[0].strip():
        raise DataError(
            f"formula={shortened(formula)} must have a target on the left of one ~: 'y ~ x + (x | group)'"
        )
    target, trials = _target_and_trials(sides[0].strip(), formula)
    fixed: list[str] = []
    offsets: list[str] = []
    terms: list[GroupTerm] = []
    for sign, piece in _summands(sides[1], formula):
        inner = piece[1:-1] if piece.startswith("(") and piece.endswith(")") else ""
        if piece.startswith("offset(") and piece.endswith(")"):
            offsets.append(f"{'-' if sign == '-' else ''}({piece[7:-1]})")
        elif "|" not in inner:
            if "|" in piece:
                raise DataError(
                    f"formula={shortened(formula)}: put parentheses around {shortened(piece)}, as in "
                    "(x | group)"
                )
            fixed.append(f"{sign} {piece}" if fixed or sign == "-" else piece)
        elif sign == "-":
            raise DataError(f"formula={shortened(formula)} takes {piece} off: leave it out")
        else:
            terms += _group_terms(inner, formula, _MOST_TERMS - len(terms))
    terms = _numbered(_joined(terms, formula))
    return FormulaParts(target, " ".join(fixed) or "1", tuple(terms), trials, " + ".join(offsets))


def _target_and_trials(side, formula):
    """The target and the trials of ``k | trials(n)`` or ``cbind(k, n - k)``; else no trials."""
    found = re.fullmatch(r"(.+?)\|\s*trials\((.+)\)", side)
    if found:
        return found[1].strip(), f"({found[2].strip()})"
    if side.startswith("cbind(") and side.endswith(")"):
        parts = _split(side[6:-1], ",")
        if len(parts) != 2 or not all(parts):
            raise DataError(
                f"formula={shortened(formula)}: {shortened(side)} must be cbind(successes, failures)"
            )
        return parts[0], f"({parts[0]}) + ({parts[1]})"
    if "|" in side:
        raise DataError(f"formula={shortened(formula)}: write trials as in k | trials(n) ~ x")
    return side, ""


def _split(text, mark):
    """Parts of a text between marks, those within parentheses left alone."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


_SINGLE = re.compile(r"(?:1|(?:0|-\s*1)\s*\+\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(?:-\s*1|\+\s*0))")


def _joined(terms, formula):
    """Join terms of one column each and the same groups: these effects are independent."""
    found: list[GroupTerm] = []
    for term in terms:
        if any(term == one for one in terms if one is not term):
            raise DataError(
                f"formula={shortened(formula)} has the term ({term.effects} | {term.groups}) twice: leave "
                "one out"
            )
    for term in terms:
        same = [one for one in terms if one.factors == term.factors and _SINGLE.fullmatch(one.effects)]
        if term not in same or len(same) == 1:
            found.append(term)
        elif term is same[0]:
            matches = [_SINGLE.fullmatch(one.effects) for one in same]
            columns = [match[1] or match[2] for match in matches if match]
            head = "1" if None in columns else "0"
            names = [name for name in columns if name is not None]
            effects = " + ".join([head, *names])
            found.append(replace(term, effects=effects, correlated=False, joined=tuple(names)))
    return found


def _numbered(terms):
    """Number terms of the same groups."""
    return [
        replace(term, number=sum(one.factors == term.factors for one in terms[:place]))
        for place, term in enumerate(terms)
    ]


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


def _group_terms(inner, formula, most):
    correlated = "||" not in inner
    parts = [part.strip() for part in inner.split("|" if correlated else "||")]
    if len(parts) != 2 or not all(parts):
        raise DataError(
            f"formula={shortened(formula)}: ({inner}) must be (columns | group), such as (1 | group)"
        )
    nested = [level.strip() for level in parts[1].split("/")]
    if len(nested) > most:
        raise DataError(
            f"formula={shortened(formula)} has over {_MOST_TERMS} terms of groups; leave some out"
        )
    groups = [[name.strip() for name in level.split(":")] for level in nested]
    factors = [tuple(name for level in groups[: i + 1] for name in level) for i in range(len(groups))]
    if not all(name.isidentifier() for factor in factors for name in factor):
        raise DataError(
            f"formula={shortened(formula)}: the groups {shortened(parts[1])} must be names of columns, a:b "
            "for the combinations of two, or a/b for b within a"
        )
    return [GroupTerm(parts[0], factor, correlated) for factor in factors]
