"""Checks of numbers, seeds and random streams, shared by schedules."""

from numbers import Integral

import numpy as np

from ..errors import DataError, in_brief, shortened

ATTEMPTS = 5  # at a pass, a round or a call, each ended by lost workers, before the loss is raised

# Purposes of random streams. Those of `Task.rng` have the round in this place, which stays far below.
PERMUTATION, CANDIDATES = 2**63, 2**63 + 1


def check_count(name, value, least=1):
    """Return an integer of at least `least` as int; raise an error that names it otherwise."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise DataError(f"{name} must be an integer, got {shortened(value)}")
    if value < least:
        raise DataError(f"{name} must be at least {least}, got {value}")
    return int(value)


def known_numbers(schedule):
    """Return the numbers of shards (1 if not given) and blocks of a schedule."""
    if schedule.n_blocks is None:
        raise DataError(
            f"this {type(schedule).__name__} has no n_blocks yet: stradask.scheduler.run takes it from the "
            "program; to plan without one, give n_blocks, or call bound(n_shards, n_blocks)"
        )
    return 1 if schedule.n_shards is None else schedule.n_shards, schedule.n_blocks


def check_weights(name, values, n_blocks):
    """Return finite, non-negative numbers, one a block, as a float64 vector."""
    values = numbers_of(name, values)
    if values.shape != (n_blocks,) or not (np.isfinite(values) & (values >= 0)).all():
        raise DataError(f"{name} must be {n_blocks} finite numbers that are not negative, one for each block")
    return values


def random_source(random_state):
    """Make a RandomState of scikit-learn's `random_state`; refuse anything else by name."""
    from sklearn.utils import check_random_state

    try:
        return check_random_state(random_state)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"random_state must be an integer from 0 to 2^32 - 1, a RandomState or None: {in_brief(error)}"
        ) from error


def seed_from(random_state):
    """Turn scikit-learn's `random_state` into the 63-bit key of random streams."""
    return int(random_source(random_state).randint(0, 2**63, dtype=np.int64))


def stream(seed, purpose, round_, index=0):
    """Return the Philox generator of these numbers, which fill the upper words of its counter."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, purpose, round_, index]))


def numbers_of(name, values):
    """Return an array of float64; raise DataError if the values are none."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers: {in_brief(error)}") from None
