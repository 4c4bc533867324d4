"""The door: what it lets in, what it refuses, and in which words."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import BaseEstimator

from stradask.algorithms.inputs.indices import index_dtype, narrow_csr
from stradask.algorithms.inputs.matrices import check_counts, check_prior, check_takes, check_vocabulary
from stradask.algorithms.inputs.targets import check_targets
from stradask.errors import DataError

DENSE = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [5, 0, 3, 0]])
FORMATS = ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"]


class Model(BaseEstimator):
    pass


def assert_canonical(counts, dense):
    assert type(counts) is sparse.csr_array
    assert counts.dtype == np.int32
    assert counts.indices.dtype == counts.indptr.dtype == np.int32
    fresh = sparse.csr_array((counts.data, counts.indices, counts.indptr), shape=counts.shape)
    assert fresh.has_canonical_format
    assert (counts.data > 0).all()
    np.testing.assert_array_equal(counts.toarray(), dense)


# --- what is let in -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.uint64, np.float32, np.float64])
def test_every_sparse_format(fmt, kind, dtype):
    X = getattr(sparse, f"{fmt}_{kind}")(DENSE.astype(dtype))
    before = X.copy()
    assert_canonical(check_counts(Model(), X), DENSE)
    assert X.dtype == before.dtype
    assert (before != X).nnz == 0


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int64, np.uint64, np.float16, np.float32, np.float64, np.longdouble, object]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dense_type(dtype, order):
    assert_canonical(check_counts(Model(), np.asarray(DENSE, dtype=dtype, order=order)), DENSE)


def test_booleans_are_zero_and_one():
    assert_canonical(check_counts(Model(), DENSE > 0), DENSE > 0)
    assert_canonical(check_counts(Model(), sparse.csr_array(DENSE > 0)), DENSE > 0)


def test_lists_and_read_only_arrays():
    frozen = DENSE.copy()
    frozen.flags.writeable = False
    for X in (DENSE.tolist(), frozen):
        assert_canonical(check_counts(Model(), X), DENSE)


def test_data_frames_give_their_names():
    model = Model()
    frame = pd.DataFrame(DENSE, columns=list("abcd"))
    assert_canonical(check_counts(model, frame), DENSE)
    assert model.feature_names_in_.tolist() == list("abcd")
    assert_canonical(check_counts(model, frame.astype("Int64"), reset=False), DENSE)
    assert_canonical(check_counts(model, frame.astype(pd.SparseDtype("int64", 0)), reset=False), DENSE)
    with pytest.raises(DataError, match="feature names should match"):
        check_counts(model, frame[list("abdc")], reset=False)


def test_a_canonical_matrix_is_passed_on_without_a_copy():
    X = check_counts("LDA", DENSE)
    again = check_counts("LDA", X)
    for part in ("data", "indices", "indptr"):
        assert np.shares_memory(getattr(again, part), getattr(X, part))


def messy():
    """Unsorted indices, duplicates, a stored zero, and room to spare at the end."""
    data = np.array([1.0, 2.0, 1.0, 0.0, 5.0, 3.0, -7.5, np.nan])
    indices = np.array([3, 1, 3, 0, 0, 2, 99, -1])
    X = sparse.csr_array((3, 4))
    X.data, X.indices, X.indptr = data, indices, np.array([0, 3, 4, 6])
    return X


def test_duplicates_are_summed_and_the_callers_matrix_stays_as_it_is():
    X = messy()
    assert_canonical(check_counts(Model(), X), [[0, 2, 0, 2], [0, 0, 0, 0], [5, 0, 3, 0]])
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, part), getattr(messy(), part))


def test_stored_zeros_are_dropped_from_a_copy():
    X = sparse.csr_array((np.array([1, 0, 2], dtype=np.int32), [0, 1, 3], [0, 2, 3]), shape=(2, 4))
    assert_canonical(check_counts(Model(), X), [[1, 0, 0, 0], [0, 0, 0, 2]])
    assert (X.data.tolist(), X.indices.tolist(), X.indptr.tolist()) == ([1, 0, 2], [0, 1, 3], [0, 2, 3])


def test_a_stale_flag_of_scipy_is_not_believed():
    X = sparse.csr_array(DENSE)
    assert X.has_canonical_format
    X.indices[:2] = X.indices[:2][::-1].copy()
    X.data[:2] = X.data[:2][::-1].copy()
    assert X.has_canonical_format  # remembered, and wrong
    assert_canonical(check_counts(Model(), X), DENSE)


def test_duplicates_in_coordinates_are_summed_without_overflow():
    X = sparse.coo_array((np.full(3, 100, dtype=np.int8), ([0, 0, 0], [1, 1, 1])), shape=(1, 2))
    assert_canonical(check_counts(Model(), X), [[0, 300]])


@given(
    X=hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(0, 4)),
    fmt=st.sampled_from(FORMATS),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_shuffled_and_split_entries_come_together_again(X, fmt, seed):
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(X)
    values = X[rows, columns]
    rows, columns = np.repeat(rows, values), np.repeat(columns, values)
    shuffled = rng.permutation(len(rows))
    pieces = sparse.coo_array((np.ones(len(rows)), (rows[shuffled], columns[shuffled])), shape=X.shape)
    assert_canonical(check_counts("LDA", pieces.asformat(fmt), reset=False), X)


def test_int64_indices_are_kept_where_they_are_needed():
    n_columns = 2**31 + 10
    X = sparse.csr_array(
        (np.array([1, 4]), np.array([3, n_columns - 1]), np.array([0, 1, 2])), shape=(2, n_columns)
    )
    counts = check_counts("LDA", X, reset=False)
    assert counts.indices.dtype == counts.indptr.dtype == np.int64
    assert counts.indices.tolist() == [3, n_columns - 1]


def test_int64_indices_become_int32_where_that_is_safe():
    X = sparse.csr_array(DENSE)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    assert_canonical(check_counts(Model(), X), DENSE)


def test_row_ends_that_were_summed_up_do_not_widen_the_indices():
    X = narrow_csr(np.array([5, 6]), np.array([2, 0], np.int32), np.cumsum([0, 1, 1]), 3)
    assert X.indices.dtype == X.indptr.dtype == np.int32
    np.testing.assert_array_equal(X.toarray(), [[0, 0, 5], [6, 0, 0]])


def test_the_index_type_holds_every_position_and_column():
    limit = 2**31 - 1
    assert index_dtype(limit, limit) == np.int32
    assert index_dtype(limit + 1, 5) == np.int64
    assert index_dtype(5, limit + 1) == np.int64


def test_a_row_without_tokens_is_fine_and_a_matrix_without_only_when_not_fitting():
    model = Model()
    empty = sparse.csr_array((2, 4), dtype=np.int64)
    with pytest.raises(DataError, match="X holds no count above zero; Model needs at least one"):
        check_counts(model, empty)
    with pytest.raises(DataError, match="no count above zero"):
        check_counts(model, np.zeros((2, 4)))
    assert not hasattr(model, "n_features_in_")
    check_counts(model, DENSE)
    assert check_counts(model, empty, reset=False).shape == (2, 4)
    assert check_counts(Model(), empty, need_tokens=False).nnz == 0


# --- what is refused ------------------------------------------------------------------------------


def with_value(value):
    X = DENSE.astype(np.uint64 if isinstance(value, np.uint64) else np.result_type(DENSE, np.asarray(value)))
    X[2, 0] = value
    return X


BAD_VALUES = [
    (-3, r"Negative values in data: X holds -3 at row 2, column 0; Model takes counts"),
    (-0.5, r"Negative values in data: X holds -0\.5 at row 2, column 0"),
    (
        0.3,
        r"X holds the fractional value 0\.3 at row 2, column 0; Model takes integer counts: ",
    ),
    (2.0**31, r"X holds 2147483648\.0 at row 2, column 0; a count may be at most 2147483647"),
    (2**31, r"X holds 2147483648 at row 2, column 0; a count may be at most 2147483647"),
    (np.uint64(2**64 - 1), r"X holds 18446744073709551615 at row 2, column 0"),
    (1e300, r"X holds 1e\+300 at row 2, column 0"),
    (np.nan, r"contains NaN"),
    (np.inf, r"contains infinity"),
    (-np.inf, r"contains infinity"),
    (1j, r"Complex data not supported"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", [np.asarray, *(getattr(sparse, f"{fmt}_array") for fmt in FORMATS)])
@pytest.mark.parametrize(("value", "message"), BAD_VALUES)
def test_bad_values(value, message, form):
    model = Model()
    with pytest.raises(DataError, match=message):
        check_counts(model, form(with_value(value)))
    assert not hasattr(model, "n_features_in_")


def test_the_first_of_several_bad_values_is_named():
    X = sparse.csr_array(DENSE.astype(float))
    X.data[:] = [2, 1.5, 5, 0.25]
    with pytest.raises(DataError, match=r"1\.5 at row 0, column 3"):
        check_counts("LDA", X)


def test_negative_is_the_better_word_for_a_matrix_that_is_both():
    with pytest.raises(DataError, match=r"^Negative values in data: X holds -0\.75 at row 0, column 1"):
        check_counts("LDA", [[0.5, -0.75]])


@pytest.mark.parametrize(
    "X",
    [
        sparse.coo_array((np.full(2, 2**30), ([0, 0], [1, 1])), shape=(1, 2)),
        sparse.csr_array((np.full(2, 2**30, dtype=np.int32), [1, 1], [0, 2]), shape=(1, 2)),
    ],
)
def test_a_sum_of_duplicates_may_be_too_large(X):
    with pytest.raises(DataError, match=r"X holds 2147483648 at row 0, column 1; a count may be at most"):
        check_counts("LDA", X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((0, 3)), r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\)"),
        (sparse.csr_array((0, 3)), r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\)"),
        (np.zeros((3, 0)), r"Found array with 0 feature\(s\) \(shape=\(3, 0\)\)"),
        (sparse.csc_array((3, 0)), r"Found array with 0 feature\(s\) \(shape=\(3, 0\)\)"),
        (np.ones(3), r"Expected 2D array, got 1D array"),
        (np.ones((2, 2, 2)), r"Found array with dim 3"),
        (5, r"Expected 2D array, got scalar"),
        (sparse.coo_array(np.ones(3)), r"X must have two dimensions"),
        ([["a", "b"]], r"X holds texts"),
        (np.array([["1", "2"]]), r"numeric"),
        (pd.DataFrame({"a": [1, 2], "b": ["3", "x"]}), r"the text 'x' in row 1 of the column 'b': encode"),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), r"contains NaN"),
        ([[1, 2], [3]], r"rows of X have different lengths"),
    ],
)
def test_bad_shapes_and_types(X, message):
    with pytest.raises(DataError, match=message):
        check_counts(Model(), X)


@pytest.mark.parametrize(("X", "message"), [([[{}]], "argument must be"), (None, None)])
def test_what_scikit_learn_calls_a_type_error_or_a_missing_array(X, message):
    with pytest.raises((TypeError, DataError), match=message):
        check_counts(Model(), X)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")  # when it is made
def test_a_numpy_matrix_is_a_type_error():
    with pytest.raises(TypeError, match="matrix"):
        check_counts(Model(), np.matrix([[1]]))


def test_another_number_of_columns_than_in_fit():
    model = Model()
    check_counts(model, DENSE)
    for X in (DENSE[:, :3], sparse.csc_array(DENSE[:, :3])):
        with pytest.raises(DataError, match="X has 3 features, but Model is expecting 4 features"):
            check_counts(model, X, reset=False)


def test_a_refused_matrix_leaves_a_fitted_model_as_it_was():
    model = Model()
    check_counts(model, pd.DataFrame(DENSE, columns=list("abcd")))
    with pytest.raises(DataError):
        check_counts(model, [[0.5, 1]])
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == list("abcd")


# --- broken index arrays --------------------------------------------------------------------------


def broken(fmt, **parts):
    X = sparse.csr_array(DENSE).asformat(fmt)
    for name, value in parts.items():
        setattr(X, name, value)
    return X


BROKEN = [
    ("csr", {"indices": np.array([1, 4, 0, 2])}, r"X has the column index 4, but only the columns 0 to 3"),
    ("csr", {"indices": np.array([1, -1, 0, 2])}, r"X has the column index -1, but"),
    ("csr", {"indices": np.array([1, 2**62, 0, 2])}, rf"X has the column index {2**62}, but"),
    ("csr", {"indices": np.array([1.0, 2, 0, 2])}, r"must be a vector of integers, got float64"),
    ("csr", {"indptr": np.array([0, 3, 2, 4])}, r"indptr may never fall, but does so from 3 to 2 at row 1"),
    (
        "csr",
        {"indptr": np.array([0, 2, 2, 5])},
        r"indptr promises 5 stored values, but there are 4 values and 4",
    ),
    ("csr", {"indptr": np.array([1, 2, 2, 4])}, r"indptr must begin with 0, got 1"),
    ("csr", {"indptr": np.array([-1, 2, 2, 4])}, r"indptr must begin with 0, got -1"),
    (
        "csr",
        {"indptr": np.array([0, 2, 4])},
        r"indptr must be a vector of 4 integers, one a row and one more",
    ),
    ("csr", {"indptr": np.array([0.0, 2, 2, 4])}, r"indptr must be a vector of 4 integers"),
    ("csr", {"data": np.array([1, 2, 3])}, r"indptr promises 4 stored values, but there are 3 values and 4"),
    ("csr", {"data": np.ones((4, 2))}, r"X\.data has the wrong shape \(4, 2\)"),
    ("csc", {"indices": np.array([2, 0, 3, 0])}, r"X has the row index 3, but only the rows 0 to 2"),
    ("csc", {"indptr": np.array([0, 1, 2, 1, 4])}, r"may never fall, but does so from 2 to 1 at column 2"),
    ("coo", {"row": np.array([0, 0, 2, 3])}, r"X has the row index 3, but only the rows 0 to 2"),
    ("coo", {"col": np.array([1, 3, -2, 2])}, r"X has the column index -2, but"),
    ("coo", {"data": np.array([1, 2, 3])}, r"X has 4 row indices for 3 values"),
]


@pytest.mark.parametrize(("fmt", "parts", "message"), BROKEN)
def test_broken_index_arrays(fmt, parts, message):
    with pytest.raises(DataError, match=message):
        check_counts(Model(), broken(fmt, **parts))


def test_broken_blocks():
    X = sparse.bsr_array(np.arange(16).reshape(4, 4), blocksize=(2, 2))
    X.indices = np.array([0, 1, 0, 7])
    with pytest.raises(DataError, match="X has the column index 7, but only the columns 0 to 1"):
        check_counts(Model(), X)


def test_broken_lists_and_keys():
    lil = sparse.lil_array(DENSE)
    lil.rows[0] = [1, 9]
    with pytest.raises(DataError, match="index 9"):
        check_counts(Model(), lil)
    dok = sparse.dok_array(DENSE)
    dok._dict[(7, 1)] = 3
    with pytest.raises(DataError, match="index 7"):
        check_counts(Model(), dok)


def test_indices_far_outside_memory_do_not_crash_the_process():
    # In a process of its own: the failure this guards against is a segmentation fault.
    code = """
import numpy as np
from scipy import sparse
from stradask.algorithms.inputs.matrices import check_counts
for fmt in ("csr", "csc", "coo", "bsr"):
    X = sparse.csr_array(np.eye(50, dtype=np.int64)).asformat(fmt)
    if fmt == "coo":
        X.row = X.row + 2**30  # scipy keeps these int32
    else:
        X.indices = X.indices.astype(np.int64) * 2**50
    try:
        check_counts("LDA", X)
    except ValueError as error:
        print(fmt)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["csr", "csc", "coo", "bsr"], done.stderr


# --- priors and vocabularies ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0.1] * 3),
        (2, [2.0] * 3),
        (np.float32(0.5), [0.5] * 3),
        ([1, 2, 3], [1.0, 2.0, 3.0]),
        (np.array([1e-8, 0.5, 1e8]), [1e-8, 0.5, 1e8]),
    ],
)
def test_priors(value, expected):
    prior = check_prior("doc_topic_prior", value, 3, 0.1)
    assert prior.dtype == np.float64
    assert prior.tolist() == expected


def test_a_prior_is_a_copy():
    given = np.ones(3)
    check_prior("p", given, 3, 0.1)[0] = 9
    assert given[0] == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, r"p must be positive and finite, .*got 0\.0 in entry 0"),
        (-1.5, r"p must be positive and finite, .*got -1\.5"),
        (np.nan, r"p must be positive and finite, .*got nan"),
        ([1, np.inf, 1], r"p must be positive and finite, .*got inf in entry 1"),
        ([1, 2], r"p has the shape \(2,\); pass one number for all entries, or a vector of 3"),
        ([[1, 2, 3]], r"p has the shape \(1, 3\)"),
        ("asymmetric", r"p must be a positive number or 3 of them, got 'asymmetric'"),
        (True, r"p must be a positive number or 3 of them, got True"),
        ([1, 2, "a"], r"p must be a positive number"),
        ([1, 2j, 3], r"p must be a positive number"),
        ([1, [2], 3], r"p must be a positive number"),
    ],
)
def test_bad_priors(value, message):
    with pytest.raises(DataError, match=message):
        check_prior("p", value, 3, 0.1)


@pytest.mark.parametrize(
    "vocabulary",
    [
        ["a", "b", "c"],
        ("a", "b", "c"),
        np.array(["a", "b", "c"]),
        np.array(["a", "b", "c"], dtype=object),
        pd.Index(["a", "b", "c"]),
        pd.Series(["a", "b", "c"], index=[5, 6, 7]),
        {"c": 2, "a": 0, "b": np.int64(1)},
    ],
)
def test_vocabularies(vocabulary):
    words = check_vocabulary(vocabulary, 3)
    assert words == ["a", "b", "c"]
    assert {type(word) for word in words} == {str}


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (None, "must be a sequence of 3 words, or a mapping from word to column, not a NoneType"),
        ("abc", "not a str"),
        ({"a", "b", "c"}, "not a set"),
        (iter("abc"), "not a str_ascii_iterator"),
        (["a", "b"], "vocabulary has 2 words, but the model has 3 columns"),
        (["a", "b", 3], "vocabulary must hold str, got 3 for column 2"),
        ({"a": 0, "b": 1, "c": 3}, "vocabulary maps 'c' to 3; 3 words have the columns 0 to 2"),
        ({"a": 0, "b": 1, "c": 1}, "vocabulary maps both 'b' and 'c' to column 1"),
        ({"a": 0, "b": 1, "c": -1}, "vocabulary maps 'c' to -1; 3 words"),
        ({"a": 0, "b": 1, 5: 2}, "vocabulary must hold str, got 5 for column 2"),
        ({"a": 0, "b": 1, "c": "x"}, "vocabulary maps 'c' to 'x'; 3 words"),
    ],
)
def test_bad_vocabularies(vocabulary, message):
    with pytest.raises(DataError, match=message):
        check_vocabulary(vocabulary, 3)


def test_targets_that_cannot_be_written_are_copied():
    """As those of a data frame: kernels would be compiled once more for them."""
    y = np.arange(6.0).reshape(3, 2, order="F")
    assert np.shares_memory(check_targets(y, 3, "Ridge"), y)
    y.flags.writeable = False
    found = check_targets(y, 3, "Ridge")
    assert found.flags.writeable
    assert found.flags.f_contiguous
    np.testing.assert_array_equal(found, y)


@pytest.mark.parametrize("wrong", [lambda x: x, lambda x, y, z: x, lambda *, x, y: x])
def test_a_function_of_another_form_is_refused_by_name(wrong):
    with pytest.raises(
        DataError, match=r"f is called as f\(q, data\), and the one given is not made for that"
    ):
        check_takes("f", wrong, "q", "data")


def test_a_function_that_can_be_called_so_or_does_not_tell_is_taken():
    for right in (lambda x, y: x, lambda *rest: 0, lambda x, y=1, z=2: x, np.add, int, max):
        check_takes("f", right, "q", "data")
