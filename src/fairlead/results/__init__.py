"""Runs as they are read and compared: one reader, one table of figures, one comparison."""
