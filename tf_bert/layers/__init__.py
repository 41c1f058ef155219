"""Layers, written with keras and keras.ops alone: they say what the mathematics is."""
