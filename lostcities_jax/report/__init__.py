"""Pages to read: runs as curves, and recorded games to flip through."""
