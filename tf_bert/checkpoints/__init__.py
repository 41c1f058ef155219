"""Checkpoints: one table of names per model, read and written from the same rows."""
