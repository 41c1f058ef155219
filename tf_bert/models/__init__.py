"""Models, each an ordinary keras.Model, and how they come from and go to checkpoints."""
