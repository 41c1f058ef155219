"""What models inherit from: the trainer, its optimizers and schedules, and prediction by length."""
