"""Targets, labels, weights and what else has a value a row come in any container, in `fit` and in `score`."""

import importlib.util

import numpy as np
import pandas as pd
import pytest
from contract_cases import RNG, Given, N, assert_close, cases, short_fits

CONTAINERS = {
    "list": lambda v: v.tolist(),
    "tuple": lambda v: tuple(v.tolist()),
    "object": lambda v: v.astype(object),
    "read-only": lambda v: np.frombuffer(v.tobytes(), v.dtype),
    "strided": lambda v: np.repeat(v, 2)[::2],
    "series": lambda v: pd.Series(v, index=np.arange(len(v))[::-1]),
    "index": pd.Index,
    "nullable": lambda v: pd.Series(v).convert_dtypes(),
    "extension array": pd.array,
}
CATEGORIES = {
    "category": lambda v: pd.Series(v).astype("category"),
    "categorical": pd.Categorical,
    "string": lambda v: pd.Series(v).astype("string"),
    "object series": lambda v: pd.Series(v, dtype=object),
}
if importlib.util.find_spec("pyarrow"):
    import pyarrow as pa

    CONTAINERS["pyarrow"] = lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.array(v).type))
    CONTAINERS["pyarrow array"] = pa.array
TABLES = {
    "list": lambda v: v.tolist(),
    "object": lambda v: v.astype(object),
    "frame": pd.DataFrame,
    "nullable frame": lambda v: pd.DataFrame(v).convert_dtypes(),
}
TIMES = {
    "two columns": lambda v: np.c_[v["time"], v["event"]],
    "list of pairs": lambda v: np.c_[v["time"], v["event"]].tolist(),
    "frame": lambda v: pd.DataFrame({"time": v["time"], "event": v["event"]}),
}


def containers(values):
    """Return the containers that can hold an array, by name."""
    if values.dtype.names:
        return TIMES
    if values.ndim == 2:
        return TABLES
    return CONTAINERS | (CATEGORIES if values.dtype.kind == "U" else {})


@pytest.mark.parametrize("case", cases("containers", lambda case: case.data not in ("ratings", "table")))
def test_a_container_does_not_change_the_model(case):
    given = case.given
    weights = {"sample_weight": RNG.integers(1, 4, N).astype(float)} if case.weights else {}
    by_row = given.by_row | weights
    plain = case.fit(given._replace(by_row=by_row))
    for name, hold in (CONTAINERS if given.y is None else containers(given.y)).items():
        rows = {key: CONTAINERS.get(name, list)(values) for key, values in by_row.items()}
        if "covariates" in rows and name == "object":
            continue  # of objects each value is a level
        y = None if given.y is None else hold(given.y)
        model = case.fit(Given(given.X, y, rows, given.also))
        assert_close(case.answer(model), case.answer(plain), name)
        assert list(getattr(model, "classes_", ())) == list(getattr(plain, "classes_", ())), name
        if y is not None and hasattr(model, "score"):
            with short_fits():
                assert_close(plain.score(given.X, y), model.score(given.X, given.y), name, 1e-6)
