"""The order of labels that are text, dates in text, and the units of slices."""

import datetime

import numpy as np
import pytest

from stradask.algorithms.topics.reading.comparison import group_codes
from stradask.algorithms.topics.reading.over_time import place_of, slice_codes
from stradask.algorithms.topics.reading.times import UNITS, in_order, names_of, numbers_of
from stradask.errors import DataError

MONTHS = ["11/2004", "2/2004", "10/2004", "1/2005", "1/2004"]
YEAR = np.datetime64("2003-11-20") + np.arange(366)


@pytest.mark.parametrize(
    "ordered",
    [
        ["1/2004", "2/2004", "10/2004", "11/2004", "1/2005"],
        ["Feb 2004", "Oct 2004", "Jan 2005"],
        ["February, 2004", "October, 2004", "January, 2005"],
        ["5 Jan 2004", "10 Jan 2004", "1 Feb 2004"],
        ["Jan 5, 2004", "Jan 10, 2004", "Feb 1, 2004"],
        ["2004-2", "2004-10", "2005-1"],
        ["Q2 2004", "Q4 2004", "Q1 2005"],
        ["2004Q2", "2004Q4", "2005Q1"],
        ["31/1/2004", "1/2/2004", "2/2/2004"],
        ["1/31/2004", "2/1/2004", "2/2/2004"],
        ["1.2.2004", "13.2.2004", "2.3.2004"],
        ["2004-01-31", "2004-02-01T10:00", "2004-02-01T9:00"],
        ["week 2", "week 10"],
        ["-1.5", "0.25", "0.5", "1e1"],
        ["v1.2", "v1.10"],
        ["9", "10", "100"],
        ["1984-85", "1985-86", "1999-00"],
        ["13/2004", "99/2003"],  # no months
        ["Jan", "Feb", "Sept.", "December"],
        ["Marble 2003", "Oak 2003"],  # no month
        ["early", "late"],
    ],
)
def test_text_is_in_the_order_of_its_numbers_or_dates(ordered):
    given = np.array(ordered[::-1])
    if ordered[0] != "2004-01-31":  # in which equal days stay in the order of text
        assert np.sort(given)[in_order(np.sort(given))].tolist() == ordered
    labels, codes = group_codes(ordered[::-1], len(ordered))
    assert labels[codes].tolist() == ordered[::-1]


def test_categories_keep_an_order_that_someone_chose():
    pandas = pytest.importorskip("pandas")
    chosen = pandas.Categorical(MONTHS, categories=MONTHS)
    assert group_codes(chosen, 5)[0].tolist() == MONTHS
    by_text = pandas.Categorical(MONTHS, categories=sorted(MONTHS), ordered=True)
    assert group_codes(by_text, 5)[0].tolist() == sorted(MONTHS)
    assert group_codes(pandas.Series(MONTHS).astype("category"), 5)[0].tolist() == [
        "1/2004", "2/2004", "10/2004", "11/2004", "1/2005",
    ]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_those_of_pandas(unit):
    pandas = pytest.importorskip("pandas")
    periods = pandas.Series(YEAR).dt.to_period(unit[0].upper())
    numbers = numbers_of(YEAR, unit)
    np.testing.assert_array_equal(numbers, periods.astype("int64") if unit != "week" else numbers)
    assert names_of(numbers, unit).tolist() == [str(period).partition("/")[0] for period in periods]


@pytest.mark.parametrize(("n_a_day", "unit"), [(20, "week"), (1, "month"), (0.25, "quarter"), (0.1, "year")])
def test_dates_are_in_the_shortest_unit_of_enough_documents(n_a_day, unit):
    days = np.datetime64("2001-01-01") + (np.arange(int(600 * n_a_day)) / n_a_day).astype(int)
    seconds = days.astype("datetime64[s]") + np.arange(len(days)) % 86400
    numbers = numbers_of(days, unit)
    expected = names_of(np.arange(numbers[0], numbers[-1] + 1), unit)
    forms = {
        "times": seconds,
        "text": seconds.astype(str),
        "objects": seconds.astype(object),
        "dates": days.astype(object),
        "days first": [f"{day:%d/%m/%Y}" for day in days.astype(object)],
        "names": [f"{day:%B} {day.day}, {day.year}" for day in days.astype(object)],
    }
    for name, slices in forms.items():
        labels, codes, found = slice_codes(slices, len(days), chooses=True)
        assert found == unit, name
        assert labels.tolist() == expected.tolist(), name
        np.testing.assert_array_equal(codes, numbers - numbers[0])
    day = datetime.date(2001, 5, 6)
    (name,) = names_of(numbers_of(np.array([day], "datetime64[D]"), unit), unit)
    for label in (day, str(day), "6 May 2001", name):
        assert expected[place_of(label, expected, unit)] == name


def test_dates_stay_as_they_are_where_each_has_documents_enough():
    labels, codes, unit = slice_codes(np.repeat(MONTHS, 20), 100, chooses=True)
    assert unit is None
    assert labels.tolist() == ["1/2004", "2/2004", "10/2004", "11/2004", "1/2005"]
    assert labels[codes].tolist() == np.repeat(MONTHS, 20).tolist()
    labels, _, unit = slice_codes(np.repeat(MONTHS, 10), 50, chooses=True)
    assert (unit, labels.tolist()) == ("quarter", ["2004Q1", "2004Q2", "2004Q3", "2004Q4", "2005Q1"])
    assert slice_codes(np.repeat(MONTHS, 4), 20, chooses=True)[0].tolist() == ["2004", "2005"]


def test_a_day_that_may_be_a_month_is_refused():
    with pytest.raises(DataError, match="'1/2/2004', but which of two numbers is the day"):
        slice_codes(["1/2/2004", "3/2/2004"] * 20, 40, chooses=True)
