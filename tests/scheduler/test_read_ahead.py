"""What fits is kept, what does not is read ahead, in the order of passes, never more than allowed."""

import pickle
import threading
import time

import pytest

from stradask.scheduler.read_ahead import ReadAhead


def made(n, n_bytes, ahead=2, size=10):
    """Values 0 to n - 1 of some bytes, and the numbers that were read, in order."""
    values, seen, lock = ReadAhead(n_bytes, ahead), [], threading.Lock()

    def reader(number):
        def read():
            with lock:
                seen.append(number)
            return [number]

        return read

    for number in range(n):
        values.add(number, reader(number), size)
    return values, seen


@pytest.mark.parametrize("n_bytes", [0, 30, 1000])
def test_values_are_those_of_their_numbers_and_what_fits_is_read_once(n_bytes):
    values, seen = made(8, n_bytes)
    for _ in range(5):
        assert [values.get(number)[0] for number in range(8)] == list(range(8))
    n_kept = min(n_bytes // 10, 8)
    kept = [number for number in range(8) if values.kept(number) is not None]
    assert len(kept) == n_kept
    assert values.kept_bytes == 10 * n_kept
    assert all(seen.count(number) == 1 for number in kept)
    streamed = [number for number in range(8) if number not in kept]
    assert all(5 <= seen.count(number) <= 7 for number in streamed)  # and perhaps for a pass to come


def test_two_values_come_while_one_is_worked_on():
    values, seen = made(6, 0)
    values.get(2)
    end = time.monotonic() + 30
    while len(seen) < 3 and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(0.05)
    assert sorted(seen) == [2, 3, 4]
    assert values.get(3) == [3]
    assert values.n_hits == 1


def test_after_the_last_value_come_the_first():
    values, seen = made(5, 0)
    values.get(4)
    end = time.monotonic() + 30
    while len(seen) < 3 and time.monotonic() < end:
        time.sleep(0.001)
    assert sorted(seen) == [0, 1, 4]


def test_what_is_worked_on_elsewhere_does_not_hold_the_place_for_ever():
    values, seen = made(8, 0)
    values.get(0)  # 1 and 2 come, and nobody asks for them
    here = [3, 4, 5, 6, 7, 0]
    for _ in range(10):
        for number in here:
            values.get(number)
    before = values.n_hits
    for number in here:
        values.get(number)
    assert values.n_hits == before + len(here)
    assert max(seen.count(1), seen.count(2)) == 1
    assert values.get(1) == [1]


def test_an_error_is_raised_where_the_value_is_needed_and_reading_goes_on():
    values, _ = made(4, 0)
    fails = [True]

    def broken():
        if fails:
            raise OSError("no such luck")
        return ["now"]

    values.add(2, broken, 10)
    values.get(0)
    values.get(1)
    with pytest.raises(OSError, match="no such luck"):
        values.get(2)
    values.get(3)
    fails.clear()
    while True:  # one that was begun before may fail once more
        try:
            assert values.get(2) == ["now"]
            break
        except OSError:
            continue


def test_many_threads_get_the_right_values():
    values, _ = made(20, 50)
    wrong = []

    def work(first):
        for k in range(100):
            number = (first + k) % 20
            if values.get(number) != [number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(5 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert values.kept_bytes == 50


def test_a_pickled_one_is_another_one():
    values, _ = made(3, 50)
    values.get(0)
    other = pickle.loads(pickle.dumps(values))
    assert (other.n_bytes, other.ahead, other.kept_bytes, other.kept(0)) == (50, 2, 0, None)
