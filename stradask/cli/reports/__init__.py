"""What the command line says of a fitted model, a file a family."""
