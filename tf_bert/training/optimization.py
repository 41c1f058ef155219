"""The original's optimizer and learning rate schedule (``optimization.py``) for Keras 3.

Devlin et al. 2018, appendix A.2. What differs from `keras.optimizers.AdamW`: no bias correction, epsilon outside the
root, and LayerNorm parameters and biases are not decayed.
"""

import contextlib
import math
import re
import warnings
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf
from keras import ops

NOT_DECAYED = ("LayerNorm", "layer_norm", "bias")


@contextlib.contextmanager
def gradients_are_summed(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Within, ``optimizer.apply`` takes gradients that are already summed over the replicas.

    Keras clips what one replica holds and sums afterwards, which is not what one device does. Whoever sums first
    (our optimizers, the trainer) says so with this, and Keras's clipping, for any optimizer, sees the sum.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    state = vars(inner)
    # A count, because MirroredStrategy traces the replicas in threads that enter and leave in turn.
    state["_summed"] = state.get("_summed", 0) + 1
    state["_all_reduce_sum_gradients"] = list
    try:
        yield
    finally:
        state["_summed"] -= 1
        if not state["_summed"]:
            del state["_all_reduce_sum_gradients"]


def global_norm(gradients: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """The Euclidean norm of all gradients taken as one vector."""
    return tf.sqrt(2.0 * tf.add_n([tf.nn.l2_loss(gradient) for gradient in gradients if gradient is not None]))


class _SumThenClip:
    """Sums gradients over the replicas, then clips, and excludes variables from decay by path (mix-in)."""

    def _set_exclusion(self, patterns: Sequence[str] | None) -> None:
        self.not_decayed = list(patterns or ())

    def exclude_from_weight_decay(self, var_list=None, var_names=None) -> None:
        """Replaces the exclusion list (before the optimizer is built), and keeps it in the config.

        Args:
            var_list: variables to exclude.
            var_names: regular expressions, searched for in the variables' paths.
        """
        if self.built:
            raise ValueError("exclude_from_weight_decay() has to be called before the optimizer is built")
        exact = [f"^{re.escape(variable.path)}$" for variable in var_list or ()]
        self._set_exclusion([*(var_names or ()), *exact])

    def build(self, variables) -> None:
        """Creates the slots, and settles which variables are decayed."""
        if self.built:
            return
        super().build(variables)
        paths = [variable.path for variable in variables]
        self._decayed = [not any(re.search(pattern, path) for pattern in self.not_decayed) for path in paths]
        if self.weight_decay and self.not_decayed:
            self._warn_about_exclusion(paths)

    def _warn_about_exclusion(self, paths: list[str]) -> None:
        if tuple(self.not_decayed) != NOT_DECAYED:
            for pattern in self.not_decayed:
                if not any(re.search(pattern, path) for path in paths):
                    warnings.warn(
                        f"exclude_from_weight_decay: the pattern {pattern!r} matches no variable; paths look like "
                        f"{paths[0]!r}",
                        stacklevel=3,
                    )
        usual = [
            path for path, decayed in zip(paths, self._decayed, strict=True)
            if decayed and path.rsplit("/", 1)[-1] in ("bias", "beta", "gamma")
        ]  # fmt: skip
        if usual:
            warnings.warn(
                f"{len(usual)} bias or normalization variables, such as {usual[0]!r}, are decayed: no pattern of "
                f"exclude_from_weight_decay={self.not_decayed} matches them",
                stacklevel=3,
            )

    def _use_weight_decay(self, variable) -> bool:
        return self._decayed[self._get_variable_index(variable)]

    def _backend_apply_gradients(self, grads, trainable_variables) -> None:
        grads = [tf.convert_to_tensor(gradient) for gradient in grads]  # sparse slices become dense
        pairs = self._all_reduce_sum_gradients(zip(grads, trainable_variables, strict=True))
        with gradients_are_summed(self):
            super()._backend_apply_gradients([gradient for gradient, _ in pairs], trainable_variables)

    def _clip_gradients(self, grads):
        if not self.global_clipnorm:
            return super()._clip_gradients(grads)
        # Not finite in, not finite out: a NaN in one gradient shows in all.
        norm = global_norm(grads)
        scale = self.global_clipnorm / tf.maximum(norm, self.global_clipnorm) + (norm - norm)
        return [gradient * tf.cast(scale, gradient.dtype) for gradient in grads]

    def get_config(self) -> dict:
        """The arguments that make this optimizer again, the exclusion list included."""
        return {**super().get_config(), "exclude_from_weight_decay": self.not_decayed}


@keras.saving.register_keras_serializable("tf_bert")
class AdamWeightDecay(_SumThenClip, keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, as the original BERT has it.

    ::

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        w <- w - rate (m / (sqrt(v) + epsilon) + weight_decay_rate w)

    without bias correction: the first steps are up to three times longer, which the warm-up makes harmless. The moments
    of every row of an embedding table decay in every step, also where the gradient is sparse. A variable without a
    gradient is left as it is.

    Args:
        learning_rate: a float or a `keras.optimizers.schedules.LearningRateSchedule`, called with the number of updates
            done so far (0 for the first one).
        weight_decay_rate: the share of a weight that is taken off per unit of learning rate.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment.
        exclude_from_weight_decay: regular expressions, searched for in ``variable.path``; a variable that one of them
            matches is not decayed. By default LayerNorm parameters and biases (the original's ``create_optimizer``;
            give ``()`` to decay everything). A pattern that matches nothing warns.
        name: name of the optimizer.
        bias_correction: divide the moments by ``1 - beta^t``, as the paper of Adam does and the original does not.
        **kwargs: what every Keras optimizer takes, such as ``global_clipnorm``. Gradients are summed over the replicas
            before they are clipped.

    `adam_m` and `adam_v` give the slots of a variable, under the names that the original's checkpoints use.

    Example:
        >>> optimizer = AdamWeightDecay(0.01, weight_decay_rate=0.01, exclude_from_weight_decay=())
        >>> w = keras.Variable(1.0)
        >>> for gradient in (0.5, -0.2):
        ...     optimizer.apply([ops.convert_to_tensor(gradient)], [w])
        ...     print(round(float(w), 6))
        0.968279
        0.953496
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        weight_decay_rate: float = 0.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] | None = NOT_DECAYED,
        name: str = "AdamWeightDecay",
        *,
        bias_correction: bool = False,
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay_rate, name=name, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        self._set_exclusion(exclude_from_weight_decay)

    def build(self, variables) -> None:
        """Creates the moments ``adam_m`` and ``adam_v`` of every variable."""
        if self.built:
            return
        super().build(variables)
        self._m, self._v = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])

    def adam_m(self, variable: keras.Variable) -> keras.Variable:
        """The first moment of ``variable``: the original's ``<variable>/adam_m``."""
        return self._m[self._get_variable_index(variable)]

    def adam_v(self, variable: keras.Variable) -> keras.Variable:
        """The second moment of ``variable``: the original's ``<variable>/adam_v``."""
        return self._v[self._get_variable_index(variable)]

    def _apply_weight_decay(self, variables) -> None:
        pass  # update_step decays, with the same rate

    def update_step(self, gradient, variable, learning_rate) -> None:
        """Updates one variable and its moments in place."""
        dtype = variable.dtype
        rate = tf.cast(learning_rate, dtype)
        epsilon = tf.constant(self.epsilon, dtype)
        if self.weight_decay and self._use_weight_decay(variable):
            variable.assign_sub(rate * self.weight_decay * variable)
        if self.bias_correction:
            # m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon), with the factors taken out of the fraction
            step = tf.cast(self.iterations + 1, dtype)
            root = tf.sqrt(1.0 - tf.constant(self.beta_2, dtype) ** step)
            rate *= root / (1.0 - tf.constant(self.beta_1, dtype) ** step)
            epsilon *= root
        # The fused kernel corrects the bias by powers of beta; with both powers 0 it is the update without correction.
        # It takes 1 - beta_2 in the variable's precision, which for float32 and 0.999 is 1.3e-5 off. Scaling the
        # gradient makes up for that in v, and dividing the rate by the same factor in the update.
        beta_2 = tf.constant(self.beta_2, dtype)
        factor = math.sqrt((1.0 - self.beta_2) / (1.0 - float(np.asarray(self.beta_2, dtype.as_numpy_dtype))))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self.adam_m(variable).value.handle,
            v=self.adam_v(variable).value.handle,
            beta1_power=tf.zeros((), dtype),
            beta2_power=tf.zeros((), dtype),
            lr=rate / factor,
            beta1=tf.constant(self.beta_1, dtype),
            beta2=beta_2,
            epsilon=epsilon,
            grad=factor * tf.cast(gradient, dtype),
        )

    def get_config(self) -> dict:
        """The arguments that make this optimizer again."""
        config = super().get_config()
        config["weight_decay_rate"] = config.pop("weight_decay")
        return {
            **config,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "bias_correction": self.bias_correction,
        }


AdamWeightDecayOptimizer = AdamWeightDecay


@keras.saving.register_keras_serializable("tf_bert")
class Lamb(_SumThenClip, keras.optimizers.Lamb):
    """Keras's LAMB (You et al. 2019), with the exclusion list in its config and clipping after the reduction.

    Args:
        learning_rate: a float or a schedule.
        exclude_from_weight_decay: regular expressions, searched for in ``variable.path``.
        **kwargs: what `keras.optimizers.Lamb` takes; Keras decays beside the trust ratio, not inside it.
    """

    def __init__(self, learning_rate=0.001, exclude_from_weight_decay: Sequence[str] | None = NOT_DECAYED, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self._set_exclusion(exclude_from_weight_decay)


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

    def __call__(self, step) -> tf.Tensor:
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


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int | None = 0,
    *,
    optimizer: str = "adamw",
    decay: str = "original",
    weight_decay_rate: float = 0.01,
    exclude_from_weight_decay: Sequence[str] | None = NOT_DECAYED,
    clip_norm: float | None = 1.0,
    bias_correction: bool = False,
) -> keras.optimizers.Optimizer:
    """The optimizer that BERT is trained with: schedule, decay and clipping by the global norm.

    Args:
        init_lr: peak learning rate.
        num_train_steps: updates until the rate is 0.
        num_warmup_steps: updates of the linear warm-up.
        optimizer: ``"adamw"`` (the original's) or ``"lamb"`` (Keras's).
        decay: see `WarmupDecay`.
        weight_decay_rate: see `AdamWeightDecay`.
        exclude_from_weight_decay: see `AdamWeightDecay`.
        clip_norm: the largest global norm of the gradients, after they are summed over the replicas; None for any.
            Gradients of look-ups are dense here; the original's norm for fine-tuning on CPU and GPU counted repeated
            ids in a batch as separate slices, which is another number.
        bias_correction: see `AdamWeightDecay`; LAMB always corrects.

    Returns:
        A Keras optimizer for ``model.compile``.

    Example:
        >>> optimizer = create_optimizer(1e-4, num_train_steps=100, num_warmup_steps=10)
        >>> round(float(optimizer.learning_rate), 6)
        0.0
    """
    schedule = WarmupDecay(init_lr, num_train_steps, num_warmup_steps, decay)
    if optimizer == "adamw":
        return AdamWeightDecay(
            schedule,
            weight_decay_rate=weight_decay_rate,
            exclude_from_weight_decay=exclude_from_weight_decay,
            bias_correction=bias_correction,
            global_clipnorm=clip_norm,
        )
    if optimizer == "lamb":
        return Lamb(
            schedule,
            weight_decay=weight_decay_rate,
            exclude_from_weight_decay=exclude_from_weight_decay,
            epsilon=1e-6,
            global_clipnorm=clip_norm,
        )
    raise ValueError(f"optimizer is {optimizer!r}; known are 'adamw' and 'lamb'")
