"""The bar under every progress display: no thread of its own, and no lock kept after a failure."""

import io
import threading

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from stradask._bar import Bar
from stradask.datasets import read_uci_bow, save_uci_bow


class Failing(io.StringIO):
    """Fails from some write on."""

    def __init__(self, n_good, error):
        super().__init__()
        self.n_good, self.error = n_good, error

    def write(self, text):
        self.n_good -= 1
        if self.n_good < 0:
            raise self.error
        return super().write(text)


def draw(file):
    with Bar(total=3, file=file, mininterval=0) as bar:
        for _ in range(3):
            bar.update()


def in_another_thread(action):
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(120)
    return not thread.is_alive()


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), KeyboardInterrupt()], ids=["pipe", "ctrl-c"]
)
@pytest.mark.parametrize("n_good", [0, 1, 2, 3, 5, 7])
def test_a_failing_write_keeps_no_lock(n_good, error):
    failing = Failing(n_good, error)
    with pytest.raises(type(error)):
        draw(failing)
    assert failing.n_good < 0
    shown = io.StringIO()
    assert in_another_thread(lambda: draw(shown)), "the bar of another thread waits"
    assert "3/3" in shown.getvalue()


def test_a_reader_shows_a_bar_and_starts_no_thread(tmp_path, capsys, started):
    path = tmp_path / "docword.txt"
    save_uci_bow(csr_matrix(np.eye(3, dtype=np.int32)), path)
    read_uci_bow(path, verbose=1)
    assert started == []
    assert "docword.txt: 100%" in capsys.readouterr().err
