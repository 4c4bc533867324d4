"""Two dense layers split over places: who does what when, and what a place holds.

The first place has all other layers. It hands the input of the two to the others, adds up what each makes
with its hidden units, and does the same with gradients backward; see `Operation`.
"""

import itertools

from ..schedules.pipeline import Layout, operations, visits
from .memory import gradient_vectors, most_in_flight
from .simulate import Ports, WorkItem
from .timeline import Event


def play_split(profile, n_parts, link, *, batch_size, micro_batches, order):
    """Play a mini-batch on a clock of its own; return the events."""
    layout = Layout((1,), micro_batches, 1, order, (n_parts,))
    lists, rows = operations(layout), batch_size / micro_batches
    seconds, nbytes = _costs(profile, n_parts, link, rows)
    update = _update(profile, n_parts)
    following = dict(hop for seen in visits(layout, lists) for hop in itertools.pairwise(seen))
    arrived = dict.fromkeys(following.values())  # when the block of an operation is there; None: not yet
    at, free = [0] * n_parts, [0.0] * n_parts
    ports = Ports.of(link, n_parts)
    events: list[Event] = []
    while True:
        ready = []
        for place, number in enumerate(at):
            if number < len(lists[place]) and (since := arrived.get((place, number), 0.0)) is not None:
                start = max(since, free[place])
                ready.append((start + seconds.get(lists[place][number].kind, 0.0), start, place))
        if not ready:
            return events
        end, start, place = min(ready)  # what ends first sends first
        op = lists[place][at[place]]
        if end > start:
            kind = "backward" if "back" in op.kind else "forward"
            events.append(Event(place, kind, op.step, op.micro, start, end))
        if op.updates:
            events.append(Event(place, "update", op.step, -1, end, end + update[place > 0]))
            end += update[place > 0]
        free[place] = end
        if (place, at[place]) in following:
            to = following[place, at[place]]
            arrived[to] = end if to[0] == place else ports.send(place, to[0], end, nbytes[op.kind])
        at[place] += 1


def _costs(profile, n_parts, link, rows):
    """Return the seconds of each kind of operation, and the bytes of the messages after some of them."""
    first, last, (n_in, _, n_out) = profile.pair
    passes = profile.seconds(rows)
    before, own, after = (
        [float(seconds[part].sum()) for seconds in passes]
        for part in (slice(0, first), slice(first, last + 1), slice(last + 1, None))
    )
    item = profile.activation_bytes[last] / n_out * rows
    message = 2 * link.cpu * (n_parts > 1)
    seconds = {
        "open": before[0],
        "close": after[0],
        "open back": after[1],
        "close back": before[1],
        "forward": own[0] / n_parts,
        "backward": own[1] / n_parts,
    } | dict.fromkeys(("hand", "join", "hand back", "join back"), message / 2)
    nbytes = {
        "hand": item * n_in,
        "forward": item * n_out,
        "hand back": item * n_out,
        "backward": item * n_in if first else 0.0,  # the data have no gradient
    }
    return seconds, nbytes


def _update(profile, n_parts):
    """Return the seconds of the optimizer at the first place, and at the others."""
    first, last, _ = profile.pair
    own = float(profile.update[first : last + 1].sum()) / n_parts
    return float(profile.update.sum()) - own * (n_parts - 1), own


def split_bytes(profile, n_parts, *, batch_size, micro_batches, order):
    """Return the bytes that the first place holds, which has the most."""
    first, last, _ = profile.pair
    rows, pair = batch_size / micro_batches, slice(first, last + 1)
    others = 1 - 1 / n_parts  # the share of the two layers that is elsewhere
    numbers = profile.parameter_bytes.sum() - others * profile.parameter_bytes[pair].sum()
    contexts = profile.context_bytes.sum() - others * profile.context_bytes[pair].sum() + profile.input_bytes
    passes = [(kind, m) for kind in ("forward", "backward") for m in range(micro_batches)]
    if order != "gpipe":
        passes = sorted(passes, key=lambda one: one[1])
    in_flight = most_in_flight([WorkItem(kind, 0, m) for kind, m in passes])
    return float(
        numbers * (1 + gradient_vectors(micro_batches) + profile.state_copies) + in_flight * rows * contexts
    )


def split_row(plan, rows):
    """Return the seconds of the first place of a split: forward, backward, send, all-reduce, update."""
    seconds, nbytes = _costs(plan.profile, plan.n_places, plan.link, rows)
    forward = seconds["open"] + seconds["forward"] + seconds["close"]
    backward = seconds["open back"] + seconds["backward"] + seconds["close back"]
    send = plan.link.latency + (plan.n_places - 1) * nbytes["hand"] / plan.link.bandwidth
    return forward, backward, send, 0.0, _update(plan.profile, plan.n_places)[0]
