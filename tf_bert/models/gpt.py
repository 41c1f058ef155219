"""GPT: a stack of causal Transformer blocks trained to predict the next token (Radford et al. 2018, 2019)."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from tf_bert.backend import at_least_float32
from tf_bert.configs import GPTConfig
from tf_bert.layers.attention import get_implementation, serialize_implementation
from tf_bert.layers.heads import correct, cross_entropy
from tf_bert.layers.layer_norm import LayerNorm
from tf_bert.layers.positions import WordAndPositionEmbedding
from tf_bert.layers.transformer import TransformerEncoderBlock
from tf_bert.models.saving import Checkpointed, Configured
from tf_bert.trainer.checks import Expected, Integers
from tf_bert.trainer.execution import recompute
from tf_bert.trainer.trainer import Scores, Trainer


@keras.saving.register_keras_serializable("tf_bert")
class GPT(Checkpointed, Configured, Trainer):
    """GPT-1, GPT-2 or GPT-3, as the configuration says, with its language-model head.

    It is built, with all its variables, as soon as it is made. The output layer is the table of words.

    Args:
        config: sizes and rates.
        attention: how it is computed, ``"plain"``, ``"chunked"`` or a function of your own, see
            `tf_bert.layers.attention.MultiHeadAttention`.

    Call arguments:
        inputs: a dict of [B, T] integers: ``input_ids``; ``input_mask``, 1 for a real position and 0 for padding on
            either side (all 1 if left out), or [B, T, T] to say it for each query; ``position_ids`` (by default the
            number of real positions before each); ``document_ids``, where attention is to stay inside a document.
            For training also ``label_ids``, the token to predict at each position: by default the next of
            ``input_ids``, and nothing at the last one; and ``label_weights``, by default 1 where a position and its
            label are real. ``attention_mask`` and ``labels`` are taken as ``input_mask`` and ``label_ids``; another key
            is an error.
        return_attention_probs: whether to return ``attention_probs`` too.

    Returns:
        A dict: ``logits`` [B, T, V], float32 or wider; ``sequence_output`` [B, T, H], what the logits are made from;
        ``all_encoder_layers``, a list of [B, T, H] for each block; ``embedding_output`` [B, T, H]; and on request
        ``attention_probs``, a list of [B, N, T, T].

    Raises:
        ValueError: an id lies outside its table (in eager calls; compiled code gives NaN in its place), the sequence is
            longer than the context, there are no ``input_ids``, or there is an unknown input.

    Example:
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        >>> gpt = GPT(GPTConfig.gpt2(vocab_size=30, end_id=0, **sizes))
        >>> inputs = {"input_ids": ops.array([[2, 7, 3, 9]])}
        >>> outputs = gpt(inputs)
        >>> outputs["logits"].shape, gpt.per_example_losses(inputs, outputs)["loss"].shape
        (TensorShape([1, 4, 30]), TensorShape([1, 4]))
    """

    config_class = GPTConfig
    recompute = False  # unless `compile` says so
    loss_names = ("loss",)
    metric_names = ("accuracy",)
    label_name = "label_ids"
    input_names = (
        *("input_ids", "input_mask", "position_ids", "document_ids", "label_ids", "label_weights"),
        "num_bytes",  # which the records of language modelling have, and only their evaluation counts
    )
    sequence_inputs = ("input_ids", "input_mask", "label_weights")  # those with a value for each position

    def __init__(self, config: GPTConfig, attention: str | Callable = "plain", name: str = "gpt", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config, self.attention = config, get_implementation(attention)
        normal = keras.initializers.RandomNormal(stddev=config.initializer_range)
        self.embedding = WordAndPositionEmbedding(
            config.max_position_embeddings,
            "learned",
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            dropout=config.embedding_dropout_prob,
            initializer_range=config.initializer_range,
            dtype=self.dtype_policy,
            name="input_ids",
        )
        self.encoder = [
            TransformerEncoderBlock(
                config.num_attention_heads,
                config.hidden_size,
                config.intermediate_size,
                activation=config.hidden_act,
                dropout=config.hidden_dropout_prob,
                attention_dropout=config.attention_probs_dropout_prob,
                causal=True,
                mask="exclude",
                pre_norm=config.pre_norm,
                layer_norm_epsilon=config.layer_norm_epsilon,
                kernel_initializer=normal,
                window=config.attention_window if i % 2 else None,
                attention=self.attention,
                dtype=self.dtype_policy,
                name=f"layer_{i}",
            )
            for i in range(config.num_hidden_layers)
        ]
        self.final_norm = None
        if config.pre_norm:
            # So that the variance of their sum does not grow with the depth (Radford et al. 2019, section 2.3).
            stddev = config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
            for block in self.encoder:
                for layer in (block.attention.project, block.feed_forward.project):
                    layer.kernel_initializer = keras.initializers.RandomNormal(stddev=stddev)
            self.final_norm = LayerNorm(epsilon=config.layer_norm_epsilon, dtype=self.dtype_policy, name="LayerNorm")
        self.build()

    @property
    def decoder(self) -> list[TransformerEncoderBlock]:
        """The blocks, under the name that they have in ``.keras`` files."""
        return self.encoder

    def build(self, input_shape=None):
        """Makes all variables; their shapes do not depend on the input."""
        shape = (None, None, self.config.hidden_size)
        self.embedding.build()
        for block in self.encoder:
            block.build(shape)
        if self.final_norm is not None:
            with keras.name_scope("output"):
                self.final_norm.build(shape)
        self.built = True

    def call(self, inputs: dict[str, Any], return_attention_probs: bool = False, training: bool | None = None):
        """Scores each token of the vocabulary as the next one, at each position."""
        outputs = self.transform(inputs, return_attention_probs, training)
        return {"logits": self.logits(outputs["sequence_output"]), **outputs}  # [B, T, V]

    def transform(self, inputs: dict[str, Any], return_attention_probs: bool = False, training: bool | None = None):
        """The outputs of a call but the logits."""
        attention_mask, position_ids = self.attention_mask(inputs), self.position_ids(inputs)

        x = embedding_output = self.embedding(inputs["input_ids"], positions=position_ids, training=training)  # [B,T,H]
        all_encoder_layers, attention_probs = [], []
        for block in self.encoder:
            block = recompute(block) if self.recompute and training else block
            x, _, probs = block(x, attention_mask, return_attention_probs=return_attention_probs, training=training)
            all_encoder_layers.append(x)  # [B, T, H]
            attention_probs.append(probs)  # [B, N, T, T] where asked for
        x = x if self.final_norm is None else self.final_norm(x)
        outputs = {
            "sequence_output": x,
            "all_encoder_layers": all_encoder_layers,
            "embedding_output": embedding_output,
        }
        return outputs | ({"attention_probs": attention_probs} if return_attention_probs else {})

    def logits(self, x):
        """Scores of all tokens [..., V]."""
        return at_least_float32(self.embedding.logits(x))

    def generate(self, prompts, search=None, **options) -> dict[str, Any]:
        """Goes on with prompts, lists of ids of any lengths; see `tf_bert.decoding.language_model.generate`.

        Example:
            >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
            >>> gpt = GPT(GPTConfig.gpt2(vocab_size=30, end_id=0, **sizes))
            >>> gpt.generate([[5, 6, 7], [5]], max_length=4)["tokens"].shape[:2]
            (2, 1)
        """
        from tf_bert.decoding.language_model import generate

        return generate(self, prompts, search, **options)

    def stream(self, prompts, search=None, **options) -> Iterator[Any]:
        """The same, token by token; see `tf_bert.decoding.language_model.stream`."""
        from tf_bert.decoding.language_model import stream

        return stream(self, prompts, search, **options)

    def start_decoding(self, prompt_ids, prompt_mask, width: int, length: int, sliding=False, use_cache=True):
        """What the decoding loop needs: a step function, and its first state; all of the prompt but its last token.

        Args:
            prompt_ids: [B, P], filled up on the left.
            prompt_mask: [B, P], true for real positions.
            width: hypotheses W for each prompt.
            length: most new tokens.
            sliding: whether prompt and new tokens are more than the context.
            use_cache: whether keys and values are kept from step to step.
        """
        step = self.decoding_step(prompt_ids, prompt_mask, width, length, sliding, use_cache)
        before = prompt_ids.shape[1] - 1
        if sliding or not use_cache:
            # The tokens themselves are the state: the last ones, filled up on the left.
            room = min(before + length, self.config.max_position_embeddings)
            fill = max(room - before, 0)
            tokens = (ops.cast(prompt_ids, "int32")[:, :-1], ops.cast(prompt_mask, "bool")[:, :-1])
            state = tuple(ops.pad(x[:, max(before - room, 0) :], ((0, 0), (fill, 0))) for x in tokens)
        else:
            state = [block.attention.create_cache(ops.shape(prompt_ids)[0], before) for block in self.encoder]
            if before:
                mask, positions = prompt_mask[:, :-1], positions_of(prompt_mask)[:, :-1]
                x = self.embedding(prompt_ids[:, :-1], positions=positions, training=False)
                _, state = self.decode(x, mask, state, 0)
            room = ((0, 0), (0, 0), (0, length), (0, 0))
            state = [tuple(ops.pad(x, room) for x in cache) for cache in state]
        return step, keras.tree.map_structure(lambda x: ops.repeat(x, width, axis=0), state)

    def decoding_step(self, prompt_ids, prompt_mask, width: int, length: int, sliding=False, use_cache=True):
        """The step function; arguments as for `start_decoding`."""
        mask = ops.repeat(ops.cast(prompt_mask, "bool"), width, axis=0)  # [R, P]
        before = mask.shape[1] - 1
        last = positions_of(mask)[:, -1:]
        mask = ops.pad(mask[:, :-1], ((0, 0), (0, length)), constant_values=True)  # [R, P - 1 + T], as the cache

        def cached(tokens, index, caches):
            # A row that has ended goes on beyond the context where others are not done.
            positions = ops.minimum(last + index, self.config.max_position_embeddings - 1)
            x = self.embedding(tokens[:, None], positions=positions, training=False)  # [R, 1, H]
            x, caches = self.decode(x, mask, caches, before + index)
            return self.logits(x[:, 0]), caches, None

        def whole(tokens, index, state):
            ids, mask = state
            ids = ops.concatenate([ids[:, 1:], tokens[:, None]], axis=1)
            mask = ops.concatenate([mask[:, 1:], ops.ones_like(mask[:, :1])], axis=1)
            outputs = self({"input_ids": ids, "input_mask": mask}, training=False)
            return outputs["logits"][:, -1], (ids, mask), None

        return cached if use_cache and not sliding else whole

    def decode(self, x, attention_mask, caches, index):
        """The output of the last norm [B, T, H] with keys and values in caches, and the new caches."""
        caches = list(caches)
        for i, block in enumerate(self.encoder):
            x, caches[i], _ = block(x, attention_mask, cache=caches[i], cache_index=index, training=False)
        return (x if self.final_norm is None else self.final_norm(x)), caches

    def attention_mask(self, inputs: dict[str, Any]):
        """[B, T] or [B, T, T] booleans, true where a position may be attended to as far as it is not in the future."""
        mask, documents = inputs.get("input_mask"), inputs.get("document_ids")
        mask = None if mask is None else ops.cast(mask, "bool")
        if documents is None:
            return mask
        same = ops.equal(documents[:, :, None], documents[:, None, :])  # [B, T, T]
        if mask is None:
            return same
        return ops.logical_and(same, mask if len(mask.shape) == 3 else mask[:, None, :])

    def position_ids(self, inputs: dict[str, Any]):
        """[B, T], the position of each token; None where they are 0, 1, 2 and so on."""
        mask = inputs.get("input_mask")
        if "position_ids" in inputs or mask is None or len(mask.shape) == 3:
            return inputs.get("position_ids")
        return positions_of(mask)

    def labels(self, inputs: dict[str, Any]):
        """[B, T], the token to predict at each position; at the last one, which has no weight, any."""
        if "label_ids" in inputs:
            return inputs["label_ids"]
        ids = ops.convert_to_tensor(inputs["input_ids"])
        return ops.concatenate([ids[:, 1:], ids[:, -1:]], axis=1)

    @property
    def expected(self) -> Expected:
        """Ids inside the vocabulary, no more of them than the context has positions."""
        size, longest = self.config.vocab_size, self.config.max_position_embeddings
        return {
            "input_ids": Integers(size, longest=longest, unless="position_ids"),
            "position_ids": Integers(longest, "positions"),
            "label_ids": Integers(size, "classes"),
        }

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of tokens."""
        return {"logits": Scores("loss", "softmax", self.config.vocab_size)}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The token to predict at each position [B, T]."""
        return {"logits": self.labels(inputs)}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The weight of the label of each position."""
        ids, mask = ops.convert_to_tensor(inputs["input_ids"]), inputs.get("input_mask")
        weights = inputs.get("label_weights")
        own = weights is None
        weights = ops.ones_like(ids, self.variable_dtype) if own else ops.cast(weights, self.variable_dtype)
        if own and mask is not None and len(mask.shape) == 2:
            weights *= ops.cast(mask, weights.dtype)
        if "label_ids" not in inputs:
            if own and mask is not None and len(mask.shape) == 2:
                weights *= ops.cast(ops.concatenate([mask[:, 1:], mask[:, -1:]], axis=1), weights.dtype)
            weights *= ops.cast(ops.arange(ops.shape(ids)[1]) < ops.shape(ids)[1] - 1, weights.dtype)
        return {"loss": weights}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each label [B, T]; the exponential of the mean is the perplexity."""
        return {"loss": cross_entropy("label_ids", self.labels(inputs), outputs["logits"])}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each label [B, T] is the likeliest token."""
        right = correct(self.labels(inputs), outputs["logits"])
        return {"accuracy": (right, self.loss_weights(inputs)["loss"])}

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {"attention": serialize_implementation(self.attention)}


def positions_of(mask):
    """Positions [B, T] of the real ones of a mask [B, T]: how many real ones stand before each.

    Example:
        >>> print(positions_of(ops.array([[0, 0, 1, 1, 1]])).numpy())
        [[0 0 0 1 2]]
    """
    return ops.maximum(ops.cumsum(ops.cast(mask, "int32"), axis=1) - 1, 0)
