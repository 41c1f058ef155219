"""ELMo: two language models, one from each end, whose inner states serve as word vectors (Peters et al. 2018)."""

from typing import Any

import keras
from keras import ops

from tf_bert.backend import at_least_float32, product_with_transposed
from tf_bert.configs import ElmoConfig
from tf_bert.layers.cells import make_recurrent_layer
from tf_bert.layers.feed_forward import at_each_position
from tf_bert.layers.heads import correct, cross_entropy
from tf_bert.layers.id_range import check_range, in_range
from tf_bert.layers.recurrent import RecurrentEncoder
from tf_bert.layers.scalar_mix import ScalarMix
from tf_bert.models.saving import Configured
from tf_bert.trainer.checks import Expected, Integers
from tf_bert.trainer.trainer import Scores, Trainer

IGNORED_LABEL = -100  # of a piece that has no label of its own


@keras.saving.register_keras_serializable("tf_bert")
class Elmo(Configured, Trainer):
    """A forward and a backward LSTM language model that share the token vectors and the softmax (section 3.1).

    Each layer but the first adds what it reads. Token vectors are rows of a table; the paper makes them of characters.
    It is built, with all its variables, as soon as it is made.

    Args:
        config: sizes and rates.

    Call arguments:
        inputs: a dict of [B, S] integers: ``input_ids``; ``input_mask``, 1 for real positions, which come first (all 1
            if left out). For training also ``label_ids``, the token after each (by default the next of ``input_ids``,
            and none after the last), and ``label_weights``. ``attention_mask`` and ``labels`` are taken as
            ``input_mask`` and ``label_ids``; another key is an error.

    Returns:
        A dict: ``forward_logits``, for the token after each, and ``backward_logits``, for the one before, [B, S, V],
        float32 or wider; ``all_encoder_layers``, a list of [B, S, 2H]: the token vectors twice, then for each layer its
        two directions concatenated; and ``sequence_output``, the last of them.

    Raises:
        ValueError: an id lies outside its table (in eager calls; compiled code gives NaN in its place), or there are no
            ``input_ids``.

    Example:
        >>> elmo = Elmo(ElmoConfig(vocab_size=30, hidden_size=4))
        >>> outputs = elmo({"input_ids": ops.array([[2, 7, 3]])})
        >>> outputs["backward_logits"].shape, [layer.shape[-1] for layer in outputs["all_encoder_layers"]]
        (TensorShape([1, 3, 30]), [8, 8, 8])
    """

    config_class = ElmoConfig
    loss_names = ("forward_loss", "backward_loss")
    metric_names = ("forward_accuracy", "backward_accuracy")
    input_names = ("input_ids", "input_mask", "label_ids", "label_weights", "num_bytes")  # the last is only counted

    def __init__(self, config: ElmoConfig, name: str = "elmo", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config

        def directions(way):
            options = {"go_backwards": way == "backward", "dtype": self.dtype_policy}
            count = range(config.num_hidden_layers)
            return [make_recurrent_layer("lstm", config.hidden_size, name=f"layer_{i}_{way}", **options) for i in count]

        self.forward, self.backward = directions("forward"), directions("backward")
        self.dropout = keras.layers.Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        """Makes all variables; their shapes do not depend on the input."""
        config = self.config
        normal = keras.initializers.RandomNormal(stddev=config.initializer_range)
        shape = (config.vocab_size, config.hidden_size)
        self.token_embeddings = self.add_weight(shape=shape, initializer=normal, name="token_embeddings")
        self.output_weights = self.add_weight(shape=shape, initializer=normal.clone(), name="output_weights")
        self.output_bias = self.add_weight(shape=shape[:1], initializer="zeros", name="output_bias")
        for layer in self.forward + self.backward:
            layer.build((None, None, config.hidden_size))
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Reads the tokens from both ends."""
        ids, mask = ops.convert_to_tensor(inputs["input_ids"]), inputs.get("input_mask")
        check_range("input_ids", ids, self.config.vocab_size, f"vocab_size is {self.config.vocab_size}")
        mask = None if mask is None else ops.cast(mask, "bool")
        inside = in_range(ids, self.config.vocab_size)[..., None]
        x = ops.take(self.token_embeddings, ops.where(inside[..., 0], ids, 0), axis=0)
        x = ops.cast(ops.where(inside, x, float("nan")), self.compute_dtype)  # [B, S, H]

        tops, layers = [], [[x, x]]
        for stack, backward in ((self.forward, False), (self.backward, True)):
            h = x
            for i, layer in enumerate(stack):
                y, *_ = layer(self.dropout(h, training=training), mask=mask, training=training)
                y = ops.flip(y, axis=1) if backward else y
                h = y + h if i else y
                layers.append([h]) if not backward else layers[i + 1].append(h)
            tops.append(self.logits(self.dropout(h, training=training)))
        all_encoder_layers = [ops.concatenate(pair, axis=-1) for pair in layers]  # [B, S, 2H] each
        return {
            "forward_logits": tops[0],  # [B, S, V]
            "backward_logits": tops[1],
            "all_encoder_layers": all_encoder_layers,
            "sequence_output": all_encoder_layers[-1],
        }

    def logits(self, x):
        """Scores of all tokens [..., V]."""
        weights, bias = (ops.cast(weight, x.dtype) for weight in (self.output_weights, self.output_bias))
        logits = at_each_position(lambda rows: product_with_transposed(rows, weights), x)
        return at_least_float32(logits + bias)

    def labels(self, inputs: dict[str, Any]):
        """The tokens after and before each position, [B, S] each; where there is none, any."""
        ids = ops.convert_to_tensor(inputs["input_ids"])
        after = inputs.get("label_ids")
        after = ops.concatenate([ids[:, 1:], ids[:, -1:]], axis=1) if after is None else after
        return after, ops.concatenate([ids[:, :1], ids[:, :-1]], axis=1)

    @property
    def expected(self) -> Expected:
        """Ids inside the vocabulary."""
        return {name: Integers(self.config.vocab_size) for name in ("input_ids", "label_ids")}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of both neighbours."""
        ways = ("forward", "backward")
        return {f"{way}_logits": Scores(f"{way}_loss", "softmax", self.config.vocab_size) for way in ways}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The tokens after and before each position [B, S]."""
        return dict(zip(("forward_logits", "backward_logits"), self.labels(inputs), strict=True))

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 where a position is real and has a neighbour to predict, [B, S] for each direction."""
        ids, mask, given = inputs["input_ids"], inputs.get("input_mask"), inputs.get("label_weights")
        ones = ops.ones_like(ops.convert_to_tensor(ids), self.variable_dtype)
        real = ones if mask is None else ops.cast(mask, ones.dtype)
        forward = ops.concatenate([real[:, 1:], ops.zeros_like(real[:, :1])], axis=1) * real
        if given is not None:
            forward = ops.cast(given, ones.dtype)
        elif "label_ids" in inputs:
            forward = real
        backward = ops.concatenate([ops.zeros_like(real[:, :1]), real[:, 1:]], axis=1)
        return {"forward_loss": forward, "backward_loss": backward}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each neighbour [B, S]; the sum of both losses is minimised."""
        after, before = self.labels(inputs)
        return {
            "forward_loss": cross_entropy("label_ids", after, outputs["forward_logits"]),
            "backward_loss": cross_entropy("input_ids", before, outputs["backward_logits"]),
        }

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each neighbour is the likeliest token."""
        weights, labels = self.loss_weights(inputs), self.labels(inputs)
        return {
            f"{way}_accuracy": (correct(ids, outputs[f"{way}_logits"]), weights[f"{way}_loss"])
            for way, ids in zip(("forward", "backward"), labels, strict=True)
        }


@keras.saving.register_keras_serializable("tf_bert")
class FeatureTagger(Trainer):
    """Labels tokens from the frozen layers of an encoder: a learned mix of them, read by a bidirectional LSTM.

    With an `Elmo` it is section 3.3 of Peters et al. 2018; with a BERT and ``num_layers=4`` the feature-based approach
    of Devlin et al. 2018, section 5.3 (which puts the last four layers side by side).

    Args:
        encoder: an `Elmo`, a `tf_bert.models.bert.Bert` or a `tf_bert.models.gpt.GPT`; its weights stay as they are.
        num_labels: number of classes.
        units: width of each direction of the LSTM.
        num_layers: how many of the encoder's last layers are mixed; None for all.
        recurrent_layers: number of LSTM layers.
        dropout: of the mix, and of what is classified.

    Call arguments:
        inputs: those of the encoder. For training ``label_ids`` [B, S] too; -100 where a piece has no label of its own.

    Returns:
        A dict with ``logits`` [B, S, num_labels], float32 or wider.

    Raises:
        ValueError: the encoder has fewer layers than ``num_layers``.

    Example:
        >>> tagger = FeatureTagger(Elmo(ElmoConfig(vocab_size=30, hidden_size=4)), num_labels=3, units=5)
        >>> tagger({"input_ids": ops.array([[2, 7, 3]])})["logits"].shape
        TensorShape([1, 3, 3])
        >>> [variable.name for variable in tagger.trainable_variables][:2]  # the mix
        ['scalars', 'gamma']
    """

    loss_names = ("loss",)
    metric_names = ("accuracy",)
    label_name = "label_ids"
    label_names = ("label_ids",)

    def __init__(
        self,
        encoder: keras.Model,
        num_labels: int,
        units: int = 256,
        num_layers: int | None = None,
        recurrent_layers: int = 1,
        dropout: float = 0.5,
        name: str = "tagger",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.encoder, names = encoder, getattr(encoder, "input_names", ())
        self.input_names = tuple(dict.fromkeys((*names, "label_ids"))) if names else ()
        for layer in encoder._flatten_layers():  # each: one that was made frozen passes no change on to its parts
            layer.trainable = False
        self.num_labels, self.units, self.num_layers = num_labels, units, num_layers
        self.recurrent_layers = recurrent_layers
        self.mix = ScalarMix(dtype=self.dtype_policy, name="mix")
        self.lstm = RecurrentEncoder(
            units, recurrent_layers, bidirectional=True, dropout=dropout, dtype=self.dtype_policy, name="lstm"
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.dense = keras.layers.Dense(num_labels, dtype=self.dtype_policy, name="dense")
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the mix, the LSTM and the head."""
        shapes = [layer.shape for layer in self.features({"input_ids": ops.zeros((1, 1), "int32")})]
        self.mix.build(shapes)
        self.lstm.build(shapes[0])
        self.dense.build((None, None, 2 * self.units))
        self.built = True

    def features(self, inputs: dict[str, Any]) -> list:
        """The layers that are mixed, [B, S, H] each; no gradient flows into them."""
        outputs = self.encoder({k: v for k, v in inputs.items() if k != "label_ids"}, training=False)
        layers = outputs["all_encoder_layers"]
        if self.num_layers is not None and not 1 <= self.num_layers <= len(layers):
            raise ValueError(f"num_layers is {self.num_layers}; {self.encoder.name} has {len(layers)} layers to mix")
        return [ops.cast(ops.stop_gradient(layer), self.compute_dtype) for layer in layers[-(self.num_layers or 0) :]]

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Mixes, reads, classifies."""
        x = self.dropout(self.mix(self.features(inputs)), training=training)  # [B, S, H]
        x, _ = self.lstm(x, attention_mask=inputs.get("input_mask"), training=training)  # [B, S, 2 units]
        return {"logits": at_least_float32(self.dense(self.dropout(x, training=training)))}  # [B, S, num_labels]

    @property
    def expected(self) -> Expected:
        """What the encoder's inputs may hold, and labels of positions."""
        labels = Integers(self.num_labels, "labels", axes=2, ignored=IGNORED_LABEL, classes=True)
        return dict(getattr(self.encoder, "expected", {})) | {"label_ids": labels}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of labels at each position."""
        return {"logits": Scores("loss", "softmax", self.num_labels)}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The labels [B, S]."""
        return {"logits": ops.maximum(inputs["label_ids"], 0)} if "label_ids" in inputs else {}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each piece with a label [B, S]."""
        return {"loss": ops.not_equal(inputs["label_ids"], IGNORED_LABEL)}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each piece [B, S]."""
        labels = ops.maximum(ops.convert_to_tensor(inputs["label_ids"]), 0)
        return {"loss": cross_entropy("label_ids", labels, outputs["logits"])}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each piece is right [B, S]."""
        return {"accuracy": (correct(inputs["label_ids"], outputs["logits"]), self.loss_weights(inputs)["loss"])}

    def get_config(self) -> dict[str, Any]:
        """What `from_config` needs."""
        return super().get_config() | {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "num_labels": self.num_labels,
            "units": self.units,
            "num_layers": self.num_layers,
            "recurrent_layers": self.recurrent_layers,
            "dropout": self.dropout.rate,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None):
        """Makes the model, with fresh weights, from what `get_config` returned."""
        encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects)
        return cls(**config | {"encoder": encoder})
