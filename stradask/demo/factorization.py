"""The demo of matrix factorization: ratings with a long tail, the error against seconds, one recommendation.

The ratings are drawn, so the least error that any model can have, that of the noise, is known. Seconds are
the processor's, on one thread.
"""

import time

import numpy as np

from .curves import say_compiled
from .factorization_map import picture
from .page import Part

SIZE, QUICK_SIZE = (6000, 2000, 0.05), (600, 300, 0.1)  # users, items, share of the cells that are rated
FACTORS, NOISE = 8, 0.5
EPOCHS = (1, 2, 4, 8, 16)
USER = 0


def run(settings, say):
    """Fit, compare and explain; see `stradask.demo.page`."""
    import stradask as sd
    from stradask.datasets.split import rating_split

    say("\nMatrix factorization: what will a user like?\n")
    users, items, density = QUICK_SIZE if settings.quick else SIZE
    R, truth = sd.datasets.make_ratings(
        users, items, FACTORS, density=density, noise=NOISE, random_state=settings.seed
    )
    observed, held_out = rating_split(R, random_state=settings.seed)
    counts = np.sort(np.bincount(observed.indices, minlength=items))[::-1]
    tail = counts[: items // 10].sum() / counts.sum()
    say(
        f"data      {R.nnz:,} ratings of {items:,} items by {users:,} users; a tenth of the items has "
        f"{tail:.0%} of them"
    )

    def compile():
        for solver in ("sgd", "als", "gibbs"):
            sd.MatrixFactorization(FACTORS, solver=solver, max_iter=2).fit(observed[:100])

    say_compiled(say, compile)

    def fitted(n_components=FACTORS, **options):
        began = time.process_time()
        model = sd.MatrixFactorization(n_components, random_state=settings.seed, **options).fit(observed)
        return model, {"seconds": time.process_time() - began, "rmse": -model.score(held_out)}

    plain = sd.MatrixFactorization(1, solver="als", reg=1e-3, max_iter=5, random_state=0).fit(observed)
    plain.user_factors_[:], plain.item_factors_[:] = 0, 0
    curve = [fitted(solver="sgd", reg=0.02, max_iter=epochs)[1] | {"epochs": epochs} for epochs in EPOCHS]
    # It has no biases: they take two factors.
    bayes = fitted(FACTORS + 2, solver="gibbs", max_iter=10 if settings.quick else 40)[1]
    floor = float(np.sqrt(np.mean((_expected(truth, held_out) - held_out.data) ** 2)))
    model, _ = fitted(solver="als", reg=0.02)
    explained = explanation(model, observed)
    document = {
        "data": {"users": users, "items": items, "ratings": int(R.nnz), "share_of_a_tenth": float(tail)},
        "sgd": curve,
        "gibbs": bayes,
        "biases": {"rmse": -plain.score(held_out)},
        "truth": {"rmse": floor},
        "explanation": explained,
    }
    say(table(document))
    say(story(explained))

    def add_to(page):
        page.heading("Matrix factorization: what will a user like?")
        page.text(
            f"{R.nnz:,} ratings of {items:,} items by {users:,} users are drawn from {FACTORS} factors and "
            f"noise, with a long tail: a tenth of the items has {tail:.0%} of them. A fifth is held out."
        )
        page.code(CODE.format(factors=FACTORS))
        page.figure(*_picture(document))
        page.text(story(explained))
        page.figure(
            picture(settings.seed),
            "A map of items: 300 items of three genres, by their factors. The model got ratings only, no "
            "genres. Titles are those of the most rated items.",
            "Points with titles; those of a genre lie together.",
        )

    return Part(document, add_to, summary(document))


CODE = """
model = sd.MatrixFactorization({factors}).fit(ratings)  # ratings: scipy.sparse, users x items
model.recommend(user, 10)
model.explain(ratings[[user]], items)
model.plot_items(titles)
"""


def summary(document):
    """The row of the report's summary."""
    data, gibbs = document["data"], document["gibbs"]
    return (
        "Matrix factorization",
        f"{data['ratings']:,} ratings of {data['items']:,} items",
        f"{document['sgd'][-1]['seconds']:.2f} s of CPU time (gradient descent), "
        f"{gibbs['seconds']:.2f} s (Gibbs)",
        f"held-out RMSE {document['sgd'][-1]['rmse']:.4f} and {gibbs['rmse']:.4f}; biases alone "
        f"{document['biases']['rmse']:.4f}, the noise {document['truth']['rmse']:.4f}",
    )


def _expected(truth, R):
    """Return the expected ratings of the cells of R under the true model."""
    cells = R.tocoo()
    products = np.einsum("ij,ij->i", truth.user_factors[cells.row], truth.item_factors[cells.col])
    return truth.mean + truth.user_biases[cells.row] + truth.item_biases[cells.col] + products


def explanation(model, observed):
    """Recommend an item to a user, and the ratings of the user that contribute most to it."""
    found = model.recommend(USER, 1)
    item = int(found.items[0])
    reasons = model.explain(observed[[USER]], [item], n=3)
    rated = dict(zip(observed[[USER]].indices.tolist(), observed[[USER]].data.tolist(), strict=True))
    return {
        "user": USER,
        "item": item,
        "prediction": float(found.scores[0]),
        "without_ratings": float(model.mean_ + model.item_bias_[item]),
        "reasons": [
            {"item": int(other), "rating": rated[int(other)], "adds": float(amount)}
            for other, amount in zip(reasons.items[0], reasons.scores[0], strict=True)
            if np.isfinite(amount)
        ],
    }


def table(document):
    """Return the errors as text."""
    rows = [
        ("model", "CPU seconds", "held-out RMSE"),
        ("biases alone", "", f"{document['biases']['rmse']:.4f}"),
    ]
    rows += [
        (f"sgd, {point['epochs']} epochs", f"{point['seconds']:.2f}", f"{point['rmse']:.4f}")
        for point in document["sgd"]
    ]
    rows.append(("gibbs", f"{document['gibbs']['seconds']:.2f}", f"{document['gibbs']['rmse']:.4f}"))
    rows.append(("the noise itself", "", f"{document['truth']['rmse']:.4f}"))
    return "\n" + "\n".join(f"{name:<18} {seconds:>11} {error:>14}" for name, seconds, error in rows)


def story(explained):
    """Return a recommendation and its reasons in words."""
    reasons = ", ".join(
        f"{reason['adds']:+.2f} from the rating {reason['rating']:.1f} of item {reason['item']}"
        for reason in explained["reasons"]
    )
    return (
        f"\nUser {explained['user']} is recommended item {explained['item']}, with a predicted rating of "
        f"{explained['prediction']:.2f}. Without any rating of the user it would be "
        f"{explained['without_ratings']:.2f}; what adds most: {reasons}."
    )


def _picture(document):
    from .drawing import OURS, THEIRS, draw_curve, draw_level, make_axes, write_beside

    axes = make_axes("CPU seconds", "held-out RMSE")
    seconds, errors = ([point[name] for point in document["sgd"]] for name in ("seconds", "rmse"))
    draw_curve(axes, seconds, errors, OURS)
    write_beside(axes, "sgd", (seconds[-1], errors[-1]), OURS)
    gibbs = document["gibbs"]["seconds"], document["gibbs"]["rmse"]
    draw_curve(axes, *gibbs, THEIRS)
    write_beside(axes, "gibbs", gibbs, THEIRS)
    for name, level in (("biases alone", document["biases"]), ("the noise", document["truth"])):
        draw_level(axes, level["rmse"], name)
    axes.set_xlim(left=0)
    caption = (
        "Error on held-out ratings against seconds on one thread: one fit of gradient descent a point, of 1 "
        "to 16 epochs, and one by Gibbs sampling."
    )
    said = f"A falling curve that ends at {errors[-1]:.3f}, between biases alone and the noise."
    return axes.figure, caption, said
