"""Blocks of words and documents between which topic counts travel: state, storage, programs, checkpoints."""
