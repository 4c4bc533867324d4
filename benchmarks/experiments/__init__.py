"""Studies that the documentation quotes; they are not in the wheel."""
