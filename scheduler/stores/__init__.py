"""Files and checkpoints: whole or not there."""
