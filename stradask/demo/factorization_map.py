"""The demo's map of items of three genres, which the model does not know."""

import numpy as np
from scipy import sparse

GENRES = ("western", "opera", "thriller")
N_USERS, N_EACH, DENSITY = 1500, 100, 0.06


def genre_ratings(seed):
    """Draw ratings, users x items, of three genres by users who like some; a few items are rated often."""
    rng = np.random.default_rng(seed)
    n_items = N_EACH * len(GENRES)
    genre = np.repeat(np.arange(len(GENRES)), N_EACH)
    parts = np.eye(len(GENRES))[genre] + 0.35 * rng.standard_normal((n_items, len(GENRES)))
    popularity = rng.permutation(np.arange(1, n_items + 1) ** -0.7)
    chances = np.outer(np.exp(0.6 * rng.standard_normal(N_USERS)), popularity)
    rated = rng.random(chances.shape) < chances * (DENSITY / chances.mean())
    likes = 0.9 * rng.standard_normal((N_USERS, len(GENRES))) @ parts.T
    values = 3.5 + likes + 0.4 * rng.standard_normal(likes.shape)
    users, items = np.nonzero(rated)
    R = sparse.csr_array((values[rated], (users, items)), shape=rated.shape)
    return R, [f"{GENRES[g]} {1 + j % N_EACH}" for j, g in enumerate(genre)]


def picture(seed):
    """Fit and draw; return the figure."""
    from matplotlib.figure import Figure

    import stradask as sd

    R, titles = genre_ratings(seed)
    model = sd.MatrixFactorization(6, solver="gibbs", max_iter=40, random_state=seed).fit(R)
    figure = Figure(figsize=(7.2, 5), layout="constrained")
    model.plot_items(titles, n_titles=36, ax=figure.add_subplot())
    return figure
