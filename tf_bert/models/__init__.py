"""Models, each an ordinary keras.Model."""
