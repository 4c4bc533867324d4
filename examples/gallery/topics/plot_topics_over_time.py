"""
Topics that change over time
============================

Words of a topic change from year to year, and so do the shares of topics. `DynamicTopicModel` follows both.
These texts are generated: in one topic letters give way to e-mail.
"""

import matplotlib.pyplot as plt
import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
mail, food, weather = (
    ["letter", "stamp", "post", "email", "server"],
    ["bread", "soup", "salt"],
    ["rain", "wind"],
)
vocabulary = mail + food + weather
years = np.repeat(np.arange(1985, 2005), 30)
late = 1 / (1 + np.exp(-(years - 1995) / 2))  # from 0 to 1
X = np.zeros((len(years), len(vocabulary)), int)
for text, part in zip(X, late, strict=True):
    of_mail = np.array([1 - part, 1 - part, 1, part, part]) / 3
    topics = rng.multinomial(40, rng.dirichlet([0.3, 0.3, 0.65 - 0.6 * part]))
    for place, tokens, words in zip(
        [0, 5, 8], topics, [of_mail / of_mail.sum(), [0.5, 0.3, 0.2], [0.6, 0.4]], strict=True
    ):
        text[place : place + len(words)] = rng.multinomial(tokens, words)

dynamic = sd.DynamicTopicModel(3, drift=0.3, max_iter=100, random_state=0)
dynamic.fit(X, slices=years, vocabulary=vocabulary)

# %%
# Probabilities of the words of a topic, with 90 % intervals.
topic = int(np.argmax(dynamic.topic_word_[:, vocabulary.index("email")]))
_, ax = plt.subplots(layout="constrained")
dynamic.over_time(topic).plot(ax)
plt.show()

# %%
# The shares of the topics. Texts about the weather become rare.
_, ax = plt.subplots(layout="constrained")
dynamic.shares_over_time().plot(ax, names=[" ".join(words) for words in dynamic.topics(n_words=2)])
plt.show()
