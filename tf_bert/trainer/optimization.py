"""The original's optimizer and learning rate schedule (``optimization.py``) for Keras 3.

Devlin et al. 2018, appendix A.2. What differs from `keras.optimizers.AdamW`: no bias correction, epsilon outside the
root, and LayerNorm parameters and biases are not decayed.
"""

import contextlib
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_bert.trainer.schedules import WarmupDecay

NOT_DECAYED = ("LayerNorm", "layer_norm", "bias")
HEADS = r"^(?!(.*/)?bert/)"  # paths outside the encoder


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
    return tf.sqrt(sum_of_squares(gradients))


def sum_of_squares(gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> tf.Tensor:
    """The square of the norm of all gradients; slices count one by one, also where several are of the same row."""
    values = [gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient for gradient in gradients]
    return 2.0 * tf.add_n([tf.nn.l2_loss(value) for value in values if value is not None])


def clip_by_norm(gradients: Sequence[tf.Tensor], norm: tf.Tensor, largest: float) -> list[tf.Tensor]:
    """Gradients of the global norm ``norm``, made shorter where it is above ``largest``."""
    # Not finite in, not finite out: a NaN in one gradient shows in all.
    scale = largest / tf.maximum(norm, largest) + (norm - norm)
    return [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients]


def path_of(variable: keras.Variable | tf.Variable) -> str:
    """Returns the path of a Keras variable, or the name of a TensorFlow one without its ``:0``.

    Example:
        >>> path_of(tf.Variable(0.0, name="dense/bias")), path_of(keras.Variable(0.0, name="gamma"))
        ('dense/bias', 'gamma')
    """
    return variable.path if hasattr(variable, "path") else variable.name.partition(":")[0]


class _ByPath:
    """What AdamWeightDecay and Lamb share (mix-in): decay and rate by a variable's path, and clipping of the sum.

    Args:
        not_decayed: regular expressions; what one of them is found in is not decayed.
        rate_factors: regular expression -> what the rate is multiplied by; the first one that is found counts.
        layer_decay: the rate falls by this factor from each layer to the one below.
        clip_unmerged_slices: whether ``global_clipnorm`` is held against the norm in which repeated ids of a look-up
            count one by one.
    """

    def _set_paths(
        self,
        not_decayed: Sequence[str] | None,
        rate_factors: Mapping[str, float] | None = None,
        layer_decay: float | None = None,
        clip_unmerged_slices: bool = False,
    ) -> None:
        self.not_decayed = list(not_decayed or ())
        self.rate_factors = dict(rate_factors or {})
        self.layer_decay = layer_decay
        self.clip_unmerged_slices = clip_unmerged_slices

    def exclude_from_weight_decay(self, var_list=None, var_names=None) -> None:
        """Replaces the exclusion list (before the optimizer is built), and keeps it in the config.

        Args:
            var_list: variables to exclude.
            var_names: regular expressions, searched for in the variables' paths.
        """
        if self.built:
            raise ValueError("exclude_from_weight_decay() has to be called before the optimizer is built")
        exact = [f"^{re.escape(path_of(variable))}$" for variable in var_list or ()]
        self.not_decayed = [*(var_names or ()), *exact]

    def build(self, variables) -> None:
        """Creates the slots, and settles which variables are decayed and at what rate each one moves."""
        if self.built:
            return
        super().build(variables)
        paths = [path_of(variable) for variable in variables]
        self._check_distinct(paths)
        self._decayed = [not any(re.search(pattern, path) for pattern in self.not_decayed) for path in paths]
        self._factors = _layer_factors(paths, self.layer_decay)
        for i, path in enumerate(paths):
            found = [factor for pattern, factor in self.rate_factors.items() if re.search(pattern, path)]
            self._factors[i] *= found[0] if found else 1.0
        self._warn(paths)

    def _check_distinct(self, paths: list[str]) -> None:
        """Variables that are excluded one by one are known by their paths."""
        for path in {path for path in paths if paths.count(path) > 1}:
            if f"^{re.escape(path)}$" in self.not_decayed:
                raise ValueError(
                    f"{paths.count(path)} variables are named {path!r}, so one of them cannot be excluded from weight "
                    "decay: give each a name of its own"
                )

    def _warn(self, paths: list[str]) -> None:
        decays = self.weight_decay and self.not_decayed
        patterns = [] if not decays or tuple(self.not_decayed) == NOT_DECAYED else self.not_decayed
        for pattern in [*patterns, *self.rate_factors]:
            if not any(re.search(pattern, path) for path in paths):
                warnings.warn(f"the pattern {pattern!r} matches no variable; a path is {paths[0]!r}", stacklevel=4)
        usual = [
            path
            for path, decayed in zip(paths, self._decayed, strict=True)
            if decays and decayed and path.rsplit("/", 1)[-1] in ("bias", "beta", "gamma")
        ]
        if usual:
            warnings.warn(
                f"{len(usual)} bias or normalization variables, such as {usual[0]!r}, are decayed: no pattern of "
                f"exclude_from_weight_decay={self.not_decayed} matches them",
                stacklevel=4,
            )

    def apply_gradients(self, grads_and_vars, global_step=None, name: str | None = None):
        """Updates variables, of Keras or of TensorFlow, from pairs of gradient and variable.

        Args:
            grads_and_vars: the pairs. What has no gradient stays as it is.
            global_step, name: as in the original, which does nothing with them: ``iterations`` counts the steps here.
        """
        return super().apply_gradients(grads_and_vars)

    def rate_factor(self, variable) -> float:
        """What the rate of a variable is multiplied by; a variable with 0 is frozen."""
        return self._factors[self._get_variable_index(variable)]

    def _backend_apply_gradients(self, grads, trainable_variables) -> None:
        if self.clip_unmerged_slices and self.global_clipnorm and "_all_reduce_sum_gradients" not in vars(self):
            if tf.distribute.get_strategy().num_replicas_in_sync > 1:
                raise ValueError("clip_unmerged_slices on several replicas needs the models of tf_bert and their fit")
            norm = tf.sqrt(sum_of_squares(grads))
            grads = clip_by_norm([tf.convert_to_tensor(gradient) for gradient in grads], norm, self.global_clipnorm)
        pairs = [
            (tf.convert_to_tensor(gradient), variable)  # sparse slices become dense
            for gradient, variable in zip(grads, trainable_variables, strict=True)
            if self.rate_factor(variable)
        ]
        if not pairs:
            return
        gradients, variables = zip(*self._all_reduce_sum_gradients(pairs), strict=True)
        with gradients_are_summed(self):
            super()._backend_apply_gradients(gradients, variables)

    def _clip_gradients(self, grads):
        if not self.global_clipnorm:
            return super()._clip_gradients(grads)
        if self.clip_unmerged_slices:
            return grads  # whoever saw the slices has clipped them: the trainer, or `_backend_apply_gradients`
        return clip_by_norm(grads, global_norm(grads), self.global_clipnorm)

    def _apply_weight_decay(self, variables) -> None:
        pass  # update_step decays, at the variable's own rate

    def _decay(self, variable, rate) -> None:
        if self.weight_decay and self._decayed[self._get_variable_index(variable)]:
            variable.assign_sub(rate * self.weight_decay * variable)

    def get_config(self) -> dict:
        """The arguments that make this optimizer again, the patterns included."""
        return {
            **super().get_config(),
            "exclude_from_weight_decay": list(self.not_decayed),
            "rate_factors": dict(self.rate_factors),
            "layer_decay": self.layer_decay,
            "clip_unmerged_slices": self.clip_unmerged_slices,
        }


def _layer_factors(paths: list[str], layer_decay: float | None) -> list[float]:
    """1 for heads and pooler, ``layer_decay`` for the last layer, its square for the one below; embeddings are last."""
    if layer_decay is None:
        return [1.0] * len(paths)
    layers = [re.search(r"layer_(\d+)/", path) for path in paths]
    depth = 1 + max((int(layer[1]) for layer in layers if layer), default=-1)
    heights = [
        int(layer[1]) + 1 if layer else 0 if "embeddings/" in path else depth + 1
        for layer, path in zip(layers, paths, strict=True)
    ]
    return [layer_decay ** (depth + 1 - height) for height in heights]


@keras.saving.register_keras_serializable("tf_bert")
class AdamWeightDecay(_ByPath, keras.optimizers.Optimizer):
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
        rate_factors: regular expression -> what the rate of the variables is multiplied by in whose path it is found
            (the first that is); 0 freezes them.
        layer_decay: the rate of each layer is that of the one above, times this (Howard and Ruder 2018, section 3.2);
            heads have the full rate, embeddings the lowest.
        clip_unmerged_slices: hold ``global_clipnorm`` against another norm, see `create_optimizer`.
        **kwargs: what every Keras optimizer takes, such as ``global_clipnorm``. Gradients are summed over the replicas
            before they are clipped.

    `adam_m` and `adam_v` give the slots of a variable, under the names that the original's checkpoints use.

    Example:
        >>> optimizer = AdamWeightDecay(0.01, weight_decay_rate=0.01, exclude_from_weight_decay=())
        >>> w = keras.Variable(1.0)
        >>> for gradient in (0.5, -0.2):
        ...     optimizer.apply([tf.constant(gradient)], [w])
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
        rate_factors: Mapping[str, float] | None = None,
        layer_decay: float | None = None,
        clip_unmerged_slices: bool = False,
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay_rate, name=name, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        self._set_paths(exclude_from_weight_decay, rate_factors, layer_decay, clip_unmerged_slices)

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

    def update_step(self, gradient, variable, learning_rate) -> None:
        """Updates one variable and its moments in place."""
        dtype = variable.dtype
        rate = tf.cast(learning_rate, dtype) * self.rate_factor(variable)
        epsilon = tf.constant(self.epsilon, dtype)
        self._decay(variable, rate)
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
class Lamb(_ByPath, keras.optimizers.Lamb):
    """Keras's LAMB (You et al. 2019) with decay, rates and clipping as in `AdamWeightDecay`.

    Args:
        learning_rate: a float or a schedule.
        exclude_from_weight_decay: see `AdamWeightDecay`, as for those that follow.
        rate_factors: regular expression -> factor.
        layer_decay: factor from layer to layer.
        clip_unmerged_slices: likewise.
        **kwargs: what `keras.optimizers.Lamb` takes; ``weight_decay`` lies beside the trust ratio, not inside it.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        exclude_from_weight_decay: Sequence[str] | None = NOT_DECAYED,
        rate_factors: Mapping[str, float] | None = None,
        layer_decay: float | None = None,
        clip_unmerged_slices: bool = False,
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self._set_paths(exclude_from_weight_decay, rate_factors, layer_decay, clip_unmerged_slices)

    def update_step(self, gradient, variable, learning_rate) -> None:
        """Updates one variable and its moments in place."""
        rate = tf.cast(learning_rate, variable.dtype) * self.rate_factor(variable)
        self._decay(variable, rate)
        super().update_step(gradient, variable, rate)


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int | None = 0,
    *original: Any,
    optimizer: str = "adamw",
    decay: str = "original",
    weight_decay_rate: float = 0.01,
    exclude_from_weight_decay: Sequence[str] | None = NOT_DECAYED,
    clip_norm: float | None = 1.0,
    bias_correction: bool = False,
    layer_decay: float | None = None,
    head_lr: float | None = None,
    frozen: Sequence[str] = (),
    clip_unmerged_slices: bool = False,
) -> keras.optimizers.Optimizer:
    """The optimizer that BERT is trained with: schedule, decay and clipping by the global norm.

    Args:
        init_lr: peak learning rate.
        num_train_steps: updates until the rate is 0.
        num_warmup_steps: updates of the linear warm-up.
        *original: nothing: further arguments mean that the original's ``create_optimizer`` was meant, and are refused.
        optimizer: ``"adamw"`` (the original's) or ``"lamb"`` (Keras's).
        decay: see `WarmupDecay`.
        weight_decay_rate: see `AdamWeightDecay`.
        exclude_from_weight_decay: see `AdamWeightDecay`.
        clip_norm: the largest global norm of the gradients, after they are summed over the replicas; None for any.
            Gradients of look-ups are dense here, and a row counts once.
        bias_correction: see `AdamWeightDecay`; LAMB always corrects.
        layer_decay: see `AdamWeightDecay`.
        head_lr: peak learning rate of the heads (what is not in ``bert/``), where it is another one.
        frozen: regular expressions; the variables in whose path one is found are not trained, and cost no backward
            pass: ``["embeddings/", "layer_[0-3]/"]``.
        clip_unmerged_slices: hold ``clip_norm`` against the norm that the original used in fine-tuning on CPU and GPU,
            in which every occurrence of an id in the batch counts as a vector of its own. (In pre-training the table is
            the output layer too, its gradient is dense, and both norms are one.)

    Returns:
        A Keras optimizer for ``model.compile``.

    Raises:
        TypeError: the arguments are those of the original, ``(loss, init_lr, num_train_steps, num_warmup_steps,
            use_tpu)``: it made the operation that minimises a loss in a TensorFlow 1 graph.
        ValueError: an unknown ``optimizer`` or ``decay``.

    Example:
        >>> optimizer = create_optimizer(1e-4, num_train_steps=100, num_warmup_steps=10)
        >>> round(float(optimizer.learning_rate), 6)
        0.0
    """
    if original:
        raise TypeError(
            "create_optimizer takes init_lr, num_train_steps, num_warmup_steps and no loss: give what it returns to "
            "model.compile, and fit minimises the model's loss"
        )
    schedule = WarmupDecay(init_lr, num_train_steps, num_warmup_steps, decay)
    rate_factors = dict.fromkeys(frozen, 0.0)
    if head_lr is not None:
        rate_factors[HEADS] = head_lr / init_lr
    by_path = {
        "exclude_from_weight_decay": exclude_from_weight_decay,
        "rate_factors": rate_factors,
        "layer_decay": layer_decay,
        "global_clipnorm": clip_norm,
        "clip_unmerged_slices": clip_unmerged_slices,
    }
    if optimizer == "adamw":
        return AdamWeightDecay(schedule, weight_decay_rate, bias_correction=bias_correction, **by_path)
    if optimizer == "lamb":
        return Lamb(schedule, weight_decay=weight_decay_rate, epsilon=1e-6, **by_path)
    raise ValueError(f"optimizer is {optimizer!r}; known are 'adamw' and 'lamb'")
