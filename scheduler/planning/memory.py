"""What a place of a plan holds at most."""

import numpy as np

from ..schedules.pipeline import Layout
from .simulate import work_of


def held(n_stages_after, n_replicas, micro_batches, order):
    """Return the most micro-batches in flight at a replica, its versions of the parameters, and gradients.

    PipeDream keeps the parameters of each mini-batch in flight, the others one version.
    """
    n_steps = 2 * (1 + n_stages_after) if order == "pipedream" else 1
    own = work_of(Layout((n_replicas, *[1] * n_stages_after), micro_batches, n_steps, order))[:n_replicas]
    return (
        max(map(most_in_flight, own)),
        max(map(_most_versions, own)),
        gradient_vectors(micro_batches // n_replicas),
    )


def gradient_vectors(n_micro):
    """Return how many vectors the sum of the gradients of micro-batches needs.

    They are summed in pairs, and pairs of pairs, and the second of a pair adds to the vector of the first: as
    many vectors as the most ones of a binary number up to theirs.

    Examples
    --------
    >>> from stradask.scheduler.planning.memory import gradient_vectors
    >>> [gradient_vectors(n) for n in (1, 2, 4, 7, 32)]
    [1, 1, 2, 3, 5]
    """
    return (n_micro + 1).bit_length() - 1


def most_in_flight(work):
    """Return the most micro-batches between their forward and their backward pass at a place."""
    now = most = 0
    for kind, _, _ in work:
        now += {"forward": 1, "backward": -1}.get(kind, 0)
        most = max(most, now)
    return most


def _most_versions(work):
    """Return how many versions of the parameters the micro-batches in flight read, and the newest one."""
    now, most, read = 0, 1, {}
    for kind, step, micro in work:
        if kind == "forward":
            read[step, micro] = now
        elif kind == "backward":
            del read[step, micro]
        else:
            now += 1
        most = max(most, len({now, *read.values()}))
    return most


def stage_bytes(profile, rows, recompute, in_flight, versions, gradients):
    """Return what a place with each stage holds: bytes of shape (n_layers, n_layers + 1).

    Parameters (each version), gradients and the optimizer's state; of each micro-batch in flight its input
    and what the layers keep for the backward pass, or with re-materialisation the input, and one
    micro-batch's rest.
    """
    n = profile.n_layers
    into = np.concatenate([[profile.input_bytes], profile.activation_bytes[:-1]]) * rows

    def sums(values):
        total = np.concatenate([[0.0], np.cumsum(values)])
        return total[None, :] - total[:n, None]

    contexts = sums(profile.context_bytes) * rows
    kept = in_flight * into[:, None] + (1 if recompute else in_flight) * contexts
    return sums(profile.parameter_bytes) * (versions + gradients + profile.state_copies) + kept
