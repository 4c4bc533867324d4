"""One solver in a process of its own, and the procedures that call and time it."""
