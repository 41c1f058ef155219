"""Decoding: one loop for greedy, beam search and sampling."""
