"""Training runs: one recipe, its tasks, callbacks, resume, and where to train."""
