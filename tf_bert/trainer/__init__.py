"""Base of all models: the trainer, its optimizers and schedules, and prediction by length."""
