"""Training: optimizer, losses, metrics, trainer, distribution and resume."""
