"""Parallel text: pairs, their records, their input pipeline and scores."""
