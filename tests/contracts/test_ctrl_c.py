"""Ctrl-C keeps the model so far, with a warning, or raises KeyboardInterrupt and changes nothing."""

import re
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from contract_cases import cases

from stradask.errors import InterruptedFitWarning

# Draws by importance, which need no rounds.
AT_ONCE = {"BayesianLinearRegression", "BayesianLogisticRegression"}
LONG, FEW = {"max_iter": 50, "tol": 1e-14}, 5  # rounds of replicas that run come to their end


@pytest.mark.parametrize("case", cases("ctrl-c", lambda case: case.takes("callback")))
def test_an_interrupted_fit_is_a_model_or_nothing(case):
    model = case.make()
    parameters = model.get_params()
    model.set_params(**{name: value for name, value in LONG.items() if name in parameters})
    before, handler = dict(vars(model)), signal.getsignal(signal.SIGINT)
    rounds = []

    def interrupt(info):
        rounds.append(info.round)
        if len(rounds) == 1:
            # As a terminal does: the main thread, which may wait for replicas, is woken to take the signal.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            if threading.current_thread() is not threading.main_thread():
                time.sleep(1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            case.fit(model=model, callback=interrupt)
        except KeyboardInterrupt:
            assert dict(vars(model)) == before
        else:
            said = [str(w.message) for w in caught if issubclass(w.category, InterruptedFitWarning)]
            label = r"[\w ]+" if case.data.startswith("documents") else type(model).__name__
            if case.name in AT_ONCE:
                assert not rounds
                assert not said
            else:
                assert re.match(rf"{label} was interrupted after \d+ ", " ".join(said)), said
            assert np.isfinite(case.answer(model)).all()
    assert len(rounds) <= FEW
    assert signal.getsignal(signal.SIGINT) is handler
