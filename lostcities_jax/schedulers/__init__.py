"""Other schedulers of the lockstep traversal's mathematics: baselines, and an oracle for it."""
