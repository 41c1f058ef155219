"""Learning rate schedules of the original BERT and of the Transformer."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable("tf_bert")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly from 0, then falls to 0.

    Args:
        init_lr: the peak.
        num_train_steps: updates until the rate is 0.
        num_warmup_steps: updates of the rise; 0 or None for none.
        decay: ``"original"``: linear, counted from step 0 as the original does, so that the rate jumps down when the
            warm-up ends and never reaches ``init_lr``; ``"linear"``: linear from the end of the warm-up, without the
            jump; ``"cosine"``: half a cosine from the end of the warm-up; ``"constant"``: no fall.

    Raises:
        ValueError: for another ``decay`` or a number of steps below 1.

    Example:
        >>> schedule = WarmupDecay(1.0, num_train_steps=10, num_warmup_steps=4)
        >>> [round(float(schedule(step)), 2) for step in range(10)]
        [0.0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    """

    def __init__(self, init_lr: float, num_train_steps: int, num_warmup_steps: int | None = 0, decay: str = "original"):
        if decay not in ("original", "linear", "cosine", "constant"):
            raise ValueError(f"decay is {decay!r}; known are 'original', 'linear', 'cosine' and 'constant'")
        if num_train_steps < 1:
            raise ValueError(f"num_train_steps is {num_train_steps}; a schedule needs at least 1 step")
        self.init_lr = init_lr
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps or 0
        self.decay = decay

    def __call__(self, step):
        """The rate of the update that follows ``step`` completed ones."""
        step = ops.cast(step, keras.backend.floatx())
        warmup = self.num_warmup_steps
        start = 0 if self.decay == "original" else warmup
        done = ops.clip((step - start) / max(self.num_train_steps - start, 1), 0.0, 1.0)
        if self.decay == "constant":
            rate = ops.full_like(step, self.init_lr)
        elif self.decay == "cosine":
            rate = self.init_lr * 0.5 * (1.0 + ops.cos(math.pi * done))
        else:
            rate = self.init_lr * (1.0 - done)
        return ops.where(step < warmup, self.init_lr * step / max(warmup, 1), rate)

    def get_config(self) -> dict:
        """The arguments that make this schedule again."""
        return {
            "init_lr": self.init_lr,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "decay": self.decay,
        }


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
