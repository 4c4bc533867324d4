"""A posterior at equal wall time: shards on cores of their own, and rivals with as many cores.

Everything runs one after another on one core, and is timed by the CPU's clock; what would run side by side
counts once. The rivals may take as many seconds as the slowest shard and the combination, on as many cores:

- a run of the full data: a NUTS chain on each core, half of the time for its warm-up, at most as many draws
  as the shards have;
- importance sampling about the mode: mode and curvature, then as many draws as all cores can weigh.
"""

import time

import numpy as np

PROPOSALS = 8_000
COUNTS = {"n_samples": 1_000, "n_warmup": 500, "n_chains": 1, "n_jobs": 1}  # of a shard
_BLOCK, _STEP = 500, 5  # draws of importance sampling, and of a chain, between two looks at the clock
_GRADIENTS = 10  # a draw of NUTS takes about
_LEAST = 20  # draws of a warm-up


def full(model, n_cores, seconds, seed):
    """Run a chain on each core until the time is over; return draws (chains, n, d), as many of each."""
    from stradask.algorithms.bayes.chains import chain as chains
    from stradask.algorithms.bayes.chains import sampling

    begun = time.process_time()
    plan = sampling.make_plan(model, "nuts", n=COUNTS["n_samples"], seed=seed)
    before = time.process_time()
    model.logp_grads(np.repeat(model.start[None], 10, axis=0))
    a_draw = _GRADIENTS * (time.process_time() - before) / 10
    left = seconds - (time.process_time() - begun)
    n_warmup = int(np.clip(left / 2 / a_draw, _LEAST, COUNTS["n_warmup"]))
    rows: list[np.ndarray] = []
    for chain in range(n_cores):
        begun, own = time.process_time(), list[np.ndarray]()
        state, _ = plan.begin(model, n_warmup, chain=chain, seed=seed)
        while time.process_time() - begun < left or not own:
            state, made = chains.advance(model, state, _STEP, seed=seed, chain=chain)
            own.append(made.draws)
        rows.append(np.concatenate(own))
    n = min(map(len, rows))
    return {"draws": np.stack([own[:n] for own in rows])}


def laplace(model, n_cores, seconds, seed):
    """Weigh as many draws about the mode as the time is for; return them resampled, and their k-hat."""
    from stradask.algorithms.bayes.chains import laplace
    from stradask.algorithms.bayes.posterior.psis import importance_ess, psis, resample

    begun = time.process_time()
    mode = laplace.find_mode(model)
    left, parts = n_cores * (seconds - (time.process_time() - begun)), list[tuple]()
    begun = time.process_time()
    while time.process_time() - begun < left or not parts:
        draws, _ = laplace.laplace_draws(model, mode, _BLOCK, seed=seed, chain=len(parts))
        z = np.linalg.solve(mode.A, (draws.draws - mode.q).T)
        parts.append((draws.draws, draws.log_densities + 0.5 * (z**2).sum(axis=0)))
    draws, ratios = (np.concatenate(part) for part in zip(*parts, strict=True))
    log_weights, k_hat = psis(ratios)
    chosen = draws[resample(log_weights, len(draws), np.random.default_rng(seed))]
    return {
        "draws": chosen[None],
        "worth": np.array(importance_ess(log_weights)),
        "k_hat": np.array(k_hat),
    }
