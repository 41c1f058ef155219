"""Hard attention: attention to one sampled position, with its gradient estimator."""

import keras
from keras import ops

from tf_bert.layers.alignment import Attention, expand_mask, masked_softmax


@keras.saving.register_keras_serializable(package="tf_bert")
class HardAttention(Attention):
    """Attention to one position (Xu et al. 2015, "Show, Attend and Tell", section 4.1).

    At inference the position of the highest weight. In training a position is drawn from the weights, and the gradient
    reaches the scores in one of two ways:

    - ``gumbel``: straight-through Gumbel-softmax (Jang et al. 2017): forward the drawn position, backward the softmax
      of the scores with the same noise at a temperature;
    - ``reinforce``: the score function. The weights have no gradient; add `reinforce_loss` of the log-probability of
      the drawn positions, ``log_probability(...)``, to the loss.

    Args:
        estimator: ``gumbel`` or ``reinforce``.
        temperature: of the Gumbel-softmax.
        seed: of the draws.

    Call arguments as for `Attention`. The weights are 1 at the position and 0 elsewhere.

    Example:
        >>> attention = HardAttention(score="dot")
        >>> keys = ops.array([[[0.5], [0.7], [0.9]]])
        >>> context, weights = attention(ops.ones((1, 1, 1)), keys, attention_mask=ops.array([[1, 1, 0]]))
        >>> print(context.numpy(), weights.numpy())
        [[[0.7]]] [[[0. 1. 0.]]]
    """

    def __init__(self, estimator: str = "gumbel", temperature: float = 1.0, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if estimator not in ("gumbel", "reinforce"):
            raise ValueError(f"estimator must be 'gumbel' or 'reinforce', got {estimator!r}")
        if temperature <= 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.estimator, self.temperature, self.seed = estimator, temperature, seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def compute_weights(
        self, query, keys, attention_mask=None, projected_keys=None, positions=None, training=None, noise=None
    ):
        """The weights [B,T,S] alone; in training with ``noise`` [B,T,S] from `draw_noise`, or drawn here."""
        scores = self.compute_scores(query, keys, projected_keys)
        scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
        mask = ops.ones_like(scores, dtype="bool") if attention_mask is None else expand_mask(attention_mask)
        if training:
            scores = scores + (self.draw_noise(ops.shape(scores)) if noise is None else noise)
        soft = masked_softmax(scores / self.temperature, mask)
        hard = ops.one_hot(ops.argmax(soft, axis=-1), ops.shape(soft)[-1], dtype=soft.dtype)
        hard = ops.where(mask, hard, ops.zeros_like(hard))
        if training and self.estimator == "gumbel":
            return hard + (soft - ops.stop_gradient(soft))
        return ops.stop_gradient(hard)

    def draw_noise(self, shape):
        """Gumbel noise: the highest of scores + noise is a draw from the softmax of the scores."""
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        uniform = keras.random.uniform(shape, 1e-20, 1.0, dtype=dtype, seed=self.seed_generator)
        return -ops.log(-ops.log(uniform))

    def log_probability(self, weights, query, keys, attention_mask=None, projected_keys=None):
        """Log-probability [B,T] of the positions that ``weights`` [B,T,S] chose, and the entropy [B,T].

        A query for which nothing may be seen has 0 of both.
        """
        scores = self.compute_scores(query, keys, projected_keys)
        probabilities = masked_softmax(scores, expand_mask(attention_mask))
        log_probabilities = ops.log(ops.maximum(probabilities, 1e-30))
        chosen = ops.sum(ops.stop_gradient(weights) * log_probabilities, axis=-1)
        return chosen, -ops.sum(probabilities * log_probabilities, axis=-1)

    def get_config(self):
        """The arguments of the constructor."""
        own = {"estimator": self.estimator, "temperature": self.temperature, "seed": self.seed}
        return {**super().get_config(), **own}


def reinforce_loss(log_probability, reward, baseline, entropy=None, reward_weight=1.0, entropy_weight=0.0):
    """The loss whose gradient trains hard attention (Xu et al. 2015, section 4.1).

    Args:
        log_probability: [B], of the drawn positions, summed over the queries.
        reward: [B], log-probability of the target given the drawn positions.
        baseline: number or [B], what the reward is compared with: `moving_baseline`.
        entropy: [B], of the attention, summed over the queries; encouraged by ``entropy_weight``.
        reward_weight: the paper's lambda_r.
        entropy_weight: the paper's lambda_e.

    Returns:
        [B], to be added to the loss ``-reward``. No gradient flows through reward and baseline.
    """
    loss = -reward_weight * ops.stop_gradient(reward - baseline) * log_probability
    return loss if entropy is None else loss - entropy_weight * entropy


def moving_baseline(baseline, reward, decay: float = 0.9):
    """The next baseline, ``0.9 b + 0.1 mean(reward)`` (Xu et al. 2015, section 4.1).

    Example:
        >>> round(float(moving_baseline(-10.0, [-4.0, -6.0])), 6)
        -9.5
    """
    return decay * baseline + (1.0 - decay) * ops.mean(ops.stop_gradient(ops.convert_to_tensor(reward)))
