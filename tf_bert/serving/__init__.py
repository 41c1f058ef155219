"""Answers to raw text from a fine-tuned model."""
