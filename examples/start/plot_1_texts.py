"""
Topics of your texts
====================

You have a CSV file of texts and want to know what they are about. This notebook makes such a file from
the documentation of installed packages; put your own file in its place.
"""

import csv
import importlib
import inspect
import tempfile
from pathlib import Path

import stradask as sd

folder = Path(tempfile.mkdtemp())
packages = [
    "statistics",
    "random",
    "csv",
    "json",
    "pathlib",
    "zipfile",
    "sqlite3",
    "asyncio",
    "logging",
    "email",
    "unittest",
]
found = {}
for package in packages:
    for name, value in inspect.getmembers(importlib.import_module(package), callable):
        for part, member in [(name, value), *inspect.getmembers(value, inspect.isroutine)]:
            text = inspect.getdoc(member) or ""
            if len(text) > 200 and not part.startswith("_"):
                found.setdefault(text, [f"{package}.{name}.{part}", package, text])
rows = list(found.values())
with open(folder / "docs.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([["id", "package", "text"], *rows])

# %%
# Read and count
# --------------
# `read_texts` takes a column of a table, a folder of files, or lines. `text_counts` counts words; it leaves
# out very rare and very common ones.
texts = sd.datasets.read_texts(folder / "docs.csv", column="text")
counts = sd.text_counts(texts)
print(f"{counts.X.shape[0]} texts, {counts.X.shape[1]} words, {counts.X.sum():,} tokens")

# %%
# Fit
# ---
# `random_state` makes the result repeatable; the number of threads (`n_jobs`) does not change it.
lda = sd.LatentDirichletAllocation(n_components=8, random_state=0).fit(counts.X, vocabulary=counts.vocabulary)
print(lda.topics(n_words=7))

# %%
# Read the topics
# ---------------
# The texts that a topic fits best, and the topics of groups of texts:
for topic in range(3):
    best = lda.representative_documents(topic, n_documents=3).indices
    print(topic, [rows[i][0] for i in best])
by_package = lda.topics_by_group([row[1] for row in rows])
for package, shares in zip(by_package.groups, by_package.shares, strict=True):
    print(f"{package:>10} {shares.max():4.0%}  {' '.join(lda.topics(n_words=5)[shares.argmax()])}")

# %%
# `explore` writes one HTML page: a map of topics, a slider for the ranking of words, documents, search.
page = lda.explore(X=counts.X, path=folder / "topics.html", groups=[row[1] for row in rows])
print(f"{Path(page).stat().st_size / 1e6:.1f} MB")

# %%
# Keep it, use it on new texts
# ----------------------------
lda.save(folder / "topics.npz")
again = sd.load(folder / "topics.npz")
new, _ = sd.text_counts(["Compress the files of a folder into an archive"], vocabulary=again.vocabulary_)
shares = again.transform(new)[0]
print(
    "topic",
    shares.argmax(),
    "with",
    f"{shares.max():.0%}:",
    " ".join(again.topics(n_words=5)[shares.argmax()]),
)
