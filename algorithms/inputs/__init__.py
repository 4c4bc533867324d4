"""Input of all families: what is checked here is what compiled code may trust."""
