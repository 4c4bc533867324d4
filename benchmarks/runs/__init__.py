"""One solver in a process of its own, and the procedures that ask and time it."""
