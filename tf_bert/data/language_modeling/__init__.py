"""Blocks of tokens for language models, and their input pipeline."""
