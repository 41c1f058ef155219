"""The Transformer's learning rate."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tf_bert")
class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """``factor * H^-0.5 * min(step^-0.5, step * warmup^-1.5)`` (Vaswani et al. 2017, equation 3).

    The first update has step 1.

    Args:
        hidden_size: width H of the model.
        num_warmup_steps: updates until the rate is highest.
        factor: what the rate is multiplied by.

    Example:
        >>> schedule = NoamSchedule(512, 4000)
        >>> [f"{float(schedule(step)):.2e}" for step in (0, 3999, 15999)]
        ['1.75e-07', '6.99e-04', '3.49e-04']
    """

    def __init__(self, hidden_size: int, num_warmup_steps: int = 4000, factor: float = 1.0):
        if num_warmup_steps < 1:
            raise ValueError(f"num_warmup_steps must be at least 1, got {num_warmup_steps}")
        self.hidden_size, self.num_warmup_steps, self.factor = hidden_size, num_warmup_steps, factor

    def __call__(self, step):
        """The rate of the update that follows ``step`` completed ones."""
        step = ops.cast(step, keras.backend.floatx()) + 1.0
        peak = self.factor * (self.hidden_size * self.num_warmup_steps) ** -0.5
        return peak * ops.minimum(ops.rsqrt(step / self.num_warmup_steps), step / self.num_warmup_steps)

    def get_config(self) -> dict:
        """The arguments that make this schedule again."""
        return {"hidden_size": self.hidden_size, "num_warmup_steps": self.num_warmup_steps, "factor": self.factor}
