"""Checkpoint files of all formats: names of variables, reading, writing, vocabulary. Imports no model."""
