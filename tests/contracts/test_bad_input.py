"""What no model can be fitted to, or say something of, is refused with a message, and changes nothing."""

import numpy as np
import pandas as pd
import pytest
from contract_cases import N, cases, ratings, readers
from scipy import sparse


def with_value(value):
    def change(X):
        X = X.copy()
        X[7, 1] = value
        return X

    return change


def frame(X):
    return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])


BAD_X = {
    "NaN": with_value(np.nan),
    "infinity": with_value(np.inf),
    "NaN, sparse": lambda X: sparse.csr_array(with_value(np.nan)(X)),
    "infinity, sparse columns": lambda X: sparse.csc_array(with_value(-np.inf)(X).astype(np.float32)),
    "missing": lambda X: frame(with_value(np.nan)(X)).convert_dtypes(),
    "masked": lambda X: np.ma.array(X, mask=np.arange(X.size).reshape(X.shape) == 7),
    "one dimension": lambda X: X[:, 0],
    "three dimensions": lambda X: X[None],
    "complex": lambda X: X + 0j,
    "complex, sparse": lambda X: sparse.csr_array(X + 1j),
    "text": lambda X: X.astype(str).astype(object) + "a",
    "times": lambda X: X.astype("datetime64[s]"),
    "records": lambda X: np.zeros(len(X), [("a", float), ("b", float)]),
    "category of text": lambda X: frame(X).assign(c1=pd.Categorical(np.resize(["a", "b"], len(X)))),
    "frame of times": lambda X: frame(X).assign(c1=pd.Timestamp("2020-01-01")),
    "rows of several lengths": lambda X: [*X[:-1].tolist(), [1.0]],
    "a mapping": lambda X: {"a": 1},
    "a set": lambda X: {1, 2},
    "a generator": lambda X: (row for row in X),
    "a function": lambda X: print,
    "None": lambda X: None,
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "no rows, sparse": lambda X: sparse.csr_array((0, X.shape[1])),
    "no columns, sparse": lambda X: sparse.csr_array((len(X), 0)),
}
PAIRS = "tokens as many in each"  # which may be users and items
TEXT = "the quick brown fox jumps over the lazy dog " * 400
# What `text_counts` makes counts of; messages do not show all of it.
TEXTS = {
    "texts": lambda X: [TEXT] + ["cats and dogs"] * (len(X) - 1),
    "tokens": lambda X: [TEXT.split()] + [["cats", "dogs"]] * (len(X) - 1),
    PAIRS: lambda X: [["cats", "dogs"]] * len(X),
    "an array of texts": lambda X: np.array(["cats", "dogs"] * (len(X) // 2)),
    "a column of texts": lambda X: np.array([["cats"], ["dogs"]] * (len(X) // 2)),
    "objects": lambda X: np.array([TEXT] * len(X), dtype=object),
    "a series of texts": lambda X: pd.Series([TEXT] * len(X)),
    "a frame of texts": lambda X: pd.DataFrame({"text": [TEXT] * len(X)}),
    "bytes": lambda X: [TEXT.encode()] * len(X),
    "a text": lambda X: TEXT,
    "a short text": lambda X: "cats and dogs",
}
MISFITS = {
    "a column less": lambda X: X[:, :-1],
    "a column more, sparse": lambda X: sparse.csr_array(np.hstack([X, X[:, :1]])),
}
BAD_Y = {
    "a row less": lambda y: y[:-1],
    "masked": lambda y: np.ma.array(y, mask=np.arange(len(y)) == 3),
    "missing": lambda y: pd.Series(y).where(np.arange(len(y)) != 3),
    "None": lambda y: None,
    "complex": lambda y: pd.factorize(y)[0] * 1j,
    "a function": lambda y: print,
}
BAD_WEIGHTS = {
    "negative": lambda w: w - 2,
    "NaN": lambda w: np.where(np.arange(len(w)) == 3, np.nan, w),
    "zeros": lambda w: 0 * w,
    "a row less": lambda w: w[:-1],
    "text": lambda w: w.astype(str).astype(object) + "a",
    "infinity": lambda w: np.where(np.arange(len(w)) == 3, np.inf, w),
    "a column": lambda w: w[:, None],
    "below zero": lambda w: -1.0,
    "zero": lambda w: 0,
}
BAD_OFFSETS = {
    "a row less": lambda v: v[:-1],
    "NaN": lambda v: v + np.nan,
    "huge": lambda v: v + 1e200,
    "text": lambda v: v.astype(str).astype(object) + "a",
}
# What messages say, besides the class; and, but for the first five, those of models without counts.
AT = "{} in row 7, column 1"
WORDS = {
    "NaN": AT.format("X contains NaN"),
    "infinity": AT.format("X contains infinity"),
    "NaN, sparse": AT.format("X contains NaN"),
    "infinity, sparse columns": AT.format("X contains infinity"),
    "missing": AT.format("X contains NaN") + " ('c1')",
    "y, a row less": f"y has {N - 1} rows, but X has {N}",
    "y, missing": "in row 3",
    "y, None": "requires y to be passed",
    "y, below zero": "holds -1 in row 5",
    "weights, negative": "sample_weight must be 0 or above and finite, got -1 for row 0",
    "weights, NaN": "sample_weight must be 0 or above and finite, got nan for row 3",
    "weights, zeros": "sample_weight is zero in every row",
    "weights, a row less": f"sample_weight has the shape ({N - 1},)",
    "weights, text": "sample_weight must hold numbers",
    "weights, infinity": "sample_weight must be 0 or above and finite, got inf for row 3",
    "weights, a column": f"sample_weight has the shape ({N}, 1)",
    "weights, below zero": "sample_weight must be 0 or above",
    "weights, zero": "sample_weight is zero in every row",
    "offset, a row less": f"offset has the shape ({N - 1},",
    "offset, NaN": "offset holds nan in row 0",
    "offset, huge": "offset holds 1e+200 in row 0",
    "offset, text": "offset must hold numbers",
}
PREDICT = ("predict", "predict_proba", "predict_log_proba", "decision_function")
# By default all fitted documents; and any iterable of texts.
TAKEN = {("representative_documents", "None"), ("topics_of_tokens", "a generator")}
OF_TEXTS = {"topics_of_tokens"}


@pytest.mark.filterwarnings("ignore:.*feature names")
@pytest.mark.parametrize("case", cases("bad input", lambda case: case.data != "table"))
def test_bad_input_is_refused_and_changes_nothing(case):
    given, model = case.given, case.make()
    before, X = dict(vars(model)), given.X.toarray() if sparse.issparse(given.X) else given.X
    bad = [(name, given._replace(X=change(X))) for name, change in (BAD_X | TEXTS).items()]
    if case.data == "ratings":
        bad += [("dense", given._replace(X=X)), ("list", given._replace(X=X.tolist()))]
    if given.y is not None and given.y.ndim == 1 and given.y.dtype.names is None:
        bad += [(f"y, {name}", given._replace(y=change(given.y))) for name, change in BAD_Y.items()]
    if case.weights:
        rated = ratings(case) if case.data == "ratings" else given
        bad += [
            (f"weights, {name}", beside(rated, sample_weight=change(np.ones(len(rated.X)))))
            for name, change in BAD_WEIGHTS.items()
        ]
    if case.data == "counts":  # errors count the rows of weight 0, too
        below = given._replace(y=np.where(np.arange(N) == 5, -1, given.y))
        bad += [
            ("y, below zero", below._replace(by_row={"sample_weight": np.repeat([0.0, 1.0], [3, N - 3])}))
        ]
    if case.takes("offset"):
        offsets = {f"offset, {name}": change(offset_of(case)) for name, change in BAD_OFFSETS.items()}
        bad += [(name, beside(given, offset=offset)) for name, offset in offsets.items()]
        methods = [getattr(case.fitted, method) for method in PREDICT if case.takes("offset", method)]
        for name, offset in offsets.items():
            for method in methods:
                refuse(name, lambda method=method, offset=offset: method(X, offset=offset), WORDS[name])
    for name, wrong in bad:
        data = (wrong.X,) if given.y is None else (wrong.X, wrong.y)
        fit = lambda data=data, wrong=wrong: model.fit(*data, **wrong.by_row, **wrong.also)  # noqa: E731
        refuse(name, fit, words_of(case, name))
        assert vars(model) == before, name
    if case.takes("sample_weight", "score") and case.data not in ("survival", "ratings"):
        for name in ("negative", "NaN", "zeros", "infinity"):
            weights = BAD_WEIGHTS[name](np.ones(N))
            score = lambda w=weights: case.fitted.score(X, given.y, sample_weight=w)  # noqa: E731
            refuse(f"score, {name}", score, WORDS[f"weights, {name}"])
    if case.takes("y", "score") and given.y is not None and given.y.ndim == 1:
        for name in ("a row less", "missing") if given.y.dtype.names is None else ():
            y = BAD_Y[name](given.y)
            score = lambda y=y: case.fitted.score(X, y)  # noqa: E731
            refuse(f"score, y, {name}", score, words_of(case, f"y, {name}"))
    changes = BAD_X | TEXTS | MISFITS if case.has_columns else TEXTS if case.data == "ratings" else {}
    for name, change in changes.items():
        wrong = given._replace(X=change(X))
        words = words_of(case, name)
        for method, read in readers(case.fitted).items():
            taken = (method in OF_TEXTS and name in TEXTS) or (case.data == "ratings" and name == PAIRS)
            if (method, name) not in TAKEN and not taken:
                refuse(f"{method}, {name}", lambda read=read, wrong=wrong: read(wrong), words)


def beside(given, **by_row):
    return given._replace(by_row=given.by_row | by_row)


def offset_of(case):
    """Zeros, in the form of the offsets of a model."""
    n_outputs = {"classes": 3, "shares of classes": 3, "tasks": 2}.get(case.data, 1)
    return np.zeros(N if n_outputs == 1 else (N, n_outputs))


def words_of(case, name):
    """What a message says: how texts are counted, and where a number is missing."""
    if name in TEXTS and case.has_columns:
        return "text_counts"
    words = WORDS.get(name, "")
    if case.name.startswith("Torch") and name.endswith((", sparse", ", sparse columns")):
        return "X is sparse"
    if words.startswith("X contains") and case.has_columns:
        return f"{words}: {case.speaker}"
    return words if case.scales in ("", "penalty", "prior", "network") else ""


def refuse(name, call, words=""):
    message = ""
    try:
        call()
    except (ValueError, TypeError) as error:
        message = str(error)
    assert len(message) > 15, f"{name}: {message or 'taken'}"
    assert len(message) < 500 or name.rpartition(", ")[2] not in TEXTS, f"{name}: {message}"
    assert words in message, f"{name}: {message}"
