"""Tokenizers: plain Python with the original's behaviour to the character, and the same result inside the graph."""
