"""Networks cut into stages and trained by scheduled mini-batches: what a stage is, optimisers, the program."""
