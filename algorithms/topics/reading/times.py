"""The order of labels, in which text counts as the numbers or dates that it holds; slices of dates."""

import datetime
import re

import numpy as np

from ...._numbers import is_number

_MONTHS_OF = {"month": 1, "quarter": 3, "year": 12}
UNITS = ("week", *_MONTHS_OF)  # of slices
ENOUGH, MOST_SLICES = 20, 100  # documents of a typical slice, and slices, where the unit is chosen
_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_YEAR, _DAY, _NAME = r"(?P<year>\d{4})", r"(?P<day>\d\d?)", r"(?P<month>[a-z]{3,9}\.?)"
_MONTH = r"(?P<month>\d\d?|[a-z]{3,9}\.?)"
_FORMS = [
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_YEAR}([-/.]){_MONTH}\2{_DAY}(?:[T ].*)?",
        rf"{_YEAR}[-/. ]{_MONTH}",
        rf"{_MONTH}[-/., ]+{_YEAR}",
        rf"{_YEAR}[- /]?Q(?P<quarter>[1-4])",
        rf"Q(?P<quarter>[1-4])[- /]?{_YEAR}",
        rf"{_DAY}[-. ]+{_NAME}[-. ]+{_YEAR}",
        rf"{_NAME} +{_DAY},? +{_YEAR}",
        rf"(?P<first>\d\d?)([-/.])(?P<second>\d\d?)\2{_YEAR}(?: .*)?",
    )
]


def in_order(labels):
    """The order of distinct labels that are sorted by NumPy."""
    values = labels.tolist()
    if not values or not all(isinstance(label, str) for label in values):
        return np.arange(len(values))
    if all(map(is_number, values)):
        return np.argsort([float(label) for label in values], kind="stable")
    months = list(map(_month_of, values))
    if all(months):
        return np.argsort(months, kind="stable")
    keys = [re.split(r"(\d+)", label) for label in values]
    natural = sorted(range(len(values)), key=lambda i: [int(k) if k.isdigit() else k for k in keys[i]])
    days = days_of(labels)[0]
    return np.array(natural if days is None else sorted(natural, key=lambda i: days[i]))


def _month_of(name):
    """The number of a month's English name, whole or its first three letters; 0 if it is none."""
    name = name.strip().rstrip(".").lower()
    return next((k for k, month in enumerate(_MONTHS, 1) if name in (month, month[:3], month[:4])), 0)


def times_of(labels):
    """Dates and times as those of NumPy, whole days as days; other labels as they are."""
    values = labels.tolist() if labels.dtype.kind == "O" else ()
    if len(values) and all(isinstance(label, datetime.date) for label in values):
        local = [label.replace(tzinfo=None) if hasattr(label, "tzinfo") else label for label in values]
        labels = np.array(local, "datetime64[us]")
    if labels.dtype.kind == "M" and (labels == labels.astype("datetime64[D]")).all():
        return labels.astype("datetime64[D]")
    return labels


def days_of(labels):
    """Return the first day of each label and the unit that labels name; None, and a reason or None, if none.

    Labels are times of NumPy, or text that names at least the month of each.
    """
    if labels.dtype.kind == "M":
        return labels.astype("datetime64[D]"), "day"
    values = labels.tolist()
    if values and all(isinstance(label, str) for label in values):
        for form in _FORMS:
            matches = [form.fullmatch(label.strip()) for label in values]
            if all(matches):
                return _days_of_parts([match.groupdict() for match in matches if match])
    return None, None


def _days_of_parts(dates):
    unit = "quarter" if "quarter" in dates[0] else "day" if len(dates[0]) > 2 else "month"
    if "first" in dates[0]:
        numbers = np.array([(int(date["first"]), int(date["second"])) for date in dates])
        day_first, month_first = (bool((column > 12).any()) for column in numbers.T)
        if day_first == month_first and (numbers[:, 0] != numbers[:, 1]).any():
            return None, "which of two numbers is the day and which the month does not follow from them"
        dates = [date | {"month": date["second"], "day": date["first"]} for date in dates]
        if not day_first:
            dates = [date | {"month": date["first"], "day": date["second"]} for date in dates]
    days = []
    for date in dates:
        month = date.get("month") or str(3 * int(date["quarter"]) - 2)
        if not month.isdigit():
            month = _month_of(month)
        try:
            days.append(datetime.date(int(date["year"]), int(month), int(date.get("day", 1))))
        except ValueError:  # the thirteenth month
            return None, None
    return np.array(days, "datetime64[D]"), unit


def numbers_of(days, unit):
    """The number of the week, month, quarter or year of each day."""
    if unit == "week":  # from Monday on; day 0 is a Thursday
        return (days.astype(np.int64) + 3) // 7
    return days.astype("datetime64[M]").astype(np.int64) // _MONTHS_OF[unit]


def names_of(numbers, unit):
    """Names of such numbers: the Monday of a week, 2004-01, 2004Q1 or 2004."""
    numbers = np.asarray(numbers, np.int64)
    if unit == "quarter":
        return np.array([f"{1970 + number // 4}Q{number % 4 + 1}" for number in numbers.tolist()])
    if unit == "week":
        return (7 * numbers - 3).astype("datetime64[D]").astype(str)
    return numbers.astype(f"datetime64[{unit[0].upper()}]").astype(str)


def chosen_unit(days, codes, unit):
    """Choose the unit of slices of dates; None where dates as they are have documents enough.

    The shortest one, of those longer than `unit`, of which a typical slice has 20 documents and there are at
    most 100 slices; else years.
    """
    for longer in (None, *UNITS[UNITS.index(unit) + 1 if unit in UNITS else 0 :]):
        numbers = codes if longer is None else numbers_of(days, longer)[codes]
        counts = np.bincount(numbers - numbers.min())
        if len(counts) <= MOST_SLICES and np.median(counts[counts > 0]) >= ENOUGH:
            return longer
    return "year"
