"""What a model says of a row does not depend on the rows beside it."""

import numpy as np
import pytest
from contract_cases import N, assert_close, cases, readers, short_fits

# Methods that say something of all rows together, or draw anew for each call.
OF_ALL_ROWS = {
    "coherence", "perplexity", "plot_effect", "plot_predictive", "plot_survival", "posterior_predictive",
    "prior_predictive", "r2", "representative_documents", "sample_prior", "score", "to_ldavis",
    "topics_of_tokens",
}  # fmt: skip
ORDER = np.random.default_rng(1).permutation(N)
ROWS = {"a part": np.arange(5, 17), "another order": ORDER, "repeated rows": ORDER[[0, 1, 2, 0, 1, 2, 2]]}


@pytest.mark.parametrize("case", cases("rows", lambda case: case.data != "ratings"))
def test_a_row_is_read_alike_wherever_it_stands(case):
    methods = readers(case.fitted)
    compared = methods.keys() - OF_ALL_ROWS
    assert compared
    for name in compared:
        with short_fits():
            whole = np.asarray(methods[name](case.given))
            axis = whole.shape.index(N) if case.data != "table" else whole.ndim - 1
            for rows, index in ROWS.items():
                read = methods[name](case.given.rows(index))
                assert_close(read, np.take(whole, index, axis), f"{name}, {rows}")
