"""Files that differ from a sound one in one thing, and have sound checksums."""

import json

import numpy as np

GONE = object()


def with_value(a, at, value):
    changed = a.copy()
    changed.reshape(-1)[at] = value
    return changed


def other_arrays(a):
    """What stands in place of an array in a file that somebody changed."""
    yield GONE
    yield np.zeros((), a.dtype)
    yield a[:0] if a.ndim else np.empty(0, a.dtype)
    if a.ndim:
        yield from (a[:-1], np.concatenate([a, a]), a.T if a.ndim > 1 else a[:, None], a[..., None])
    yield np.full(a.shape, "x")
    yield np.ones(a.shape, bool)
    if a.dtype.kind in "iu" and a.size:
        info = np.iinfo(a.dtype)
        for at, value in ((0, info.max), (-1, info.max), (a.size // 2, info.min), (-1, a.flat[-1] // 2)):
            yield with_value(a, at, value)
        yield from (a.astype(np.int8), a.astype(np.float64), a.ravel()[::-1].reshape(a.shape))
    if a.dtype.kind == "f" and a.size:
        for value in (np.nan, np.inf, -1e30, 1e30):
            yield with_value(a, a.size // 2, value)
        yield from (np.zeros_like(a), a.astype(np.float32), np.ones(a.shape, np.float16))


OTHERS = [GONE, None, -1, 0, 10**9, 2.5, float("nan"), "x", [], {}, [[1]], True]
NO_HARM = {"max_iter", "n_jobs", "n_samples", "n_warmup", "verbose"}  # whoever asks for much gets it


def places(value, at=()):
    """Paths to all that JSON holds, three of a list."""
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:3]):
        here = (*at, key)
        yield from places(inner, here) if isinstance(inner, (dict, list)) else [here]


def changed_header(header, place, value):
    header = json.loads(json.dumps(header))
    inner = header
    for key in place[:-1]:
        inner = inner[key]
    if value is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return header


def other_files(arrays, header):
    """All files that differ from a sound one in one thing."""
    for name, array in arrays.items():
        for n, other in enumerate(other_arrays(array)):
            rest = {key: value for key, value in arrays.items() if key != name}
            yield f"{name}, {n}", rest if other is GONE else rest | {name: other}, header
    for place in places(header):
        if place and place[-1] not in NO_HARM:
            for other in OTHERS:
                yield f"{place}: {other}", arrays, changed_header(header, place, other)


def some(cases, share, seed):
    """About one case in `share`, the same ones every time."""
    rng = np.random.default_rng(seed)
    return [case for case in cases if share == 1 or rng.integers(share) == 0]
