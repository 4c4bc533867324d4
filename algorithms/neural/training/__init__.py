"""Networks cut into stages and trained by scheduled mini-batches."""
