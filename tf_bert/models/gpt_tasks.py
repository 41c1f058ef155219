"""GPT fine-tuned: one model for tasks whose inputs are rewritten as sequences (Radford et al. 2018, section 3.3)."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, Self

import keras
from keras import ops

from tf_bert.configs import GPTConfig
from tf_bert.configs.base import shown
from tf_bert.layers.heads import ClassificationHead, correct, cross_entropy
from tf_bert.models.gpt import GPT
from tf_bert.models.saving import Checkpointed, Configured
from tf_bert.trainer.checks import Expected, Integers, Numbers
from tf_bert.trainer.trainer import Scores, Trainer

SPECIAL_TOKENS = 3  # start, delimiter and extract are the last rows of the table
TASKS = ("classification", "similarity", "multiple_choice")
# What a configuration beside the weights notes of the model, and of which kind it is.
NOTED = {"num_labels": int, "task": str, "lm_weight": int | float, "classifier_dropout": int | float}


@keras.saving.register_keras_serializable("tf_bert")
class GPTClassifier(Checkpointed, Configured, Trainer):
    """A linear layer on GPT's output at the extract token, with language modelling as an auxiliary task.

    The loss is the paper's L3 = L2 + lambda * L1 (equation 5): L2 of the labels, L1 of the next token, each a mean over
    examples, and L1 over the tokens of an example, as in the released code.

    Args:
        config: of `GPT`; the last three rows of its table are the start, delimiter and extract tokens, see `from_gpt`.
        num_labels: number of labels; 1 for a number, with squared error. Not for multiple choice.
        task: ``classification``, of one text or of a pair with a delimiter (entailment); ``similarity``, where the
            outputs for both orders of a pair are added before the linear layer; ``multiple_choice``, where each answer
            gets a score.
        lm_weight: lambda.
        classifier_dropout: of what the linear layer is given.
        attention: see `GPT`.

    Call arguments:
        inputs: a dict of integers, from `tf_bert.data.finetuning.gpt_sequences`: ``input_ids`` and ``input_mask``,
            [B, T] for classification, [B, C, T] with both orders or all answers for the others; for training
            ``label_ids`` [B].

    Returns:
        A dict: ``logits`` [B, num_labels], or [B, C] for multiple choice; ``pooled_output`` [B, H], or [B, C, H]; and
        ``lm_logits`` [B, T, V], or [B * C, T, V], unless ``lm_weight`` is 0.

    Raises:
        ValueError: an unknown task, or inputs of another number of axes than the task has.

    Example:
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        >>> model = GPTClassifier.from_gpt(GPT(GPTConfig.gpt1(vocab_size=30, **sizes)), num_labels=2)
        >>> model.start_id, model.delimiter_id, model.extract_id
        (30, 31, 32)
        >>> model({"input_ids": ops.array([[30, 5, 6, 32]])})["logits"].shape
        TensorShape([1, 2])
    """

    config_class = GPTConfig
    loss_names = ("classification_loss", "lm_loss")
    metric_names = ("accuracy", "lm_cross_entropy")
    label_name = "label_ids"
    label_names = ("label_ids",)
    input_names = ("input_ids", "input_mask", "label_ids")
    new_rows = SPECIAL_TOKENS  # of the table of words, beyond those of the model that it was made from

    def __init__(
        self,
        config: GPTConfig,
        num_labels: int = 2,
        task: str = "classification",
        lm_weight: float = 0.5,
        classifier_dropout: float = 0.1,
        attention: str | Callable = "plain",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(TASKS)}, not {task!r}")
        if lm_weight < 0:
            raise ValueError(f"lm_weight must be at least 0, not {lm_weight}")
        self.config, self.num_labels, self.task, self.lm_weight = config, num_labels, task, lm_weight
        self.start_id, self.delimiter_id, self.extract_id = range(config.vocab_size - SPECIAL_TOKENS, config.vocab_size)
        with keras.name_scope(self.name):
            self.gpt = GPT(config, attention, dtype=self.dtype_policy)
        self.head = ClassificationHead(
            1 if task == "multiple_choice" else num_labels,
            config.initializer_range,
            dtype=self.dtype_policy,
            name="classifier",
        )
        self.dropout = keras.layers.Dropout(classifier_dropout, dtype=self.dtype_policy)
        self.build()

    @property
    def kind(self) -> str:
        """What the logits are: scores of one label of several (``"single"``), a number, or scores of choices."""
        if self.task == "multiple_choice":
            return "choice"
        return "regression" if self.num_labels == 1 else "single"

    @classmethod
    def from_gpt(cls, gpt: GPT, **arguments: Any) -> "GPTClassifier":
        """Makes the model on top of a pre-trained one, with three new rows for the new tokens.

        Args:
            gpt: the pre-trained model.
            **arguments: of the class.
        """
        config = dataclasses.replace(gpt.config, vocab_size=gpt.config.vocab_size + SPECIAL_TOKENS)
        model = cls(config, **arguments)
        for ours, theirs in zip(model.gpt.weights, gpt.weights, strict=True):
            fresh = ours[theirs.shape[0] :] if ours is model.gpt.embedding.table else None
            ours.assign(theirs if fresh is None else ops.concatenate([theirs, fresh], axis=0))
        return model

    @classmethod
    def from_checkpoint(
        cls, path_or_name: str | os.PathLike, config: GPTConfig | None = None, strict: bool = True, **arguments: Any
    ) -> Self:
        """Makes the model from one that was fine-tuned, or, by `from_gpt`, from a pre-trained GPT in any format.

        Args, returns and errors: see `tf_bert.models.saving.Checkpointed.from_checkpoint`.
        """
        from tf_bert.models.pretrained import load_model, open_checkpoint

        checkpoint = open_checkpoint(path_or_name, config)
        if checkpoint.architecture == cls.__name__:
            return load_model(checkpoint, cls, config, strict, **arguments)
        gpt = load_model(checkpoint, GPT, config, strict)
        model = cls.from_gpt(gpt, **arguments)
        model.load_report, model.vocab_file = gpt.load_report, gpt.vocab_file
        return model

    @classmethod
    def noted_arguments(cls, config: GPTConfig) -> dict[str, Any]:
        """The arguments of the class that `to_note` put into a configuration."""
        noted = config.extra.get("classifier", {})
        if not isinstance(noted, Mapping) or not set(noted) <= set(NOTED):
            raise ValueError(f"classifier is {shown(noted)} in the configuration; expected {', '.join(NOTED)}")
        for name, value in noted.items():
            if not isinstance(value, NOTED[name]) or isinstance(value, bool):
                raise ValueError(f"{name} of classifier is {shown(value)} in the configuration")
        return dict(noted)

    def to_note(self) -> dict[str, Any]:
        """What a configuration beside the weights has to say of the model."""
        settings = self.get_config()
        return {"classifier": {name: settings[name] for name in NOTED}}

    def build(self, input_shape=None):
        """Makes the variables of the linear layer."""
        self.head.build((None, self.config.hidden_size))
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Scores labels, or answers."""
        sequences, choices = self.sequences(inputs)  # [B * C, T]
        x = self.gpt.transform(sequences, training=training)["sequence_output"]  # [B * C, T, H]
        place = ops.argmax(ops.equal(sequences["input_ids"], self.extract_id), axis=1)  # [B * C]
        pooled = ops.squeeze(ops.take_along_axis(x, place[:, None, None], axis=1), 1)  # [B * C, H]
        if choices is not None:
            pooled = ops.reshape(pooled, (-1, choices, self.config.hidden_size))  # [B, C, H]
        if self.task == "similarity":
            pooled = ops.sum(pooled, axis=1)  # [B, H]
        logits = self.head(self.dropout(pooled, training=training))
        if self.task == "multiple_choice":
            logits = ops.squeeze(logits, -1)  # [B, C]
        outputs = {"logits": logits, "pooled_output": pooled}
        return outputs | ({"lm_logits": self.gpt.logits(x)} if self.lm_weight else {})

    def sequences(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        """The inputs of GPT [B * C, T], and C; None where there is one sequence for each example."""
        ids = ops.convert_to_tensor(inputs["input_ids"])
        axes = 2 if self.task == "classification" else 3
        if len(ids.shape) != axes:
            expected = "[B, T]" if axes == 2 else "[B, C, T]"
            raise ValueError(f"{self.task} takes input_ids {expected}, not of shape {tuple(ids.shape)}")
        flat = {"input_ids": ids, "input_mask": ops.convert_to_tensor(inputs.get("input_mask", ops.ones_like(ids)))}
        if axes == 2:
            return flat, None
        return {name: ops.reshape(x, (-1, ops.shape(ids)[-1])) for name, x in flat.items()}, ops.shape(ids)[1]

    @property
    def expected(self) -> Expected:
        """Ids inside the vocabulary, and labels by kind."""
        ids = {"input_ids": Integers(self.config.vocab_size, longest=self.config.max_position_embeddings)}
        if self.kind == "choice":
            return ids | {"label_ids": Integers("input_ids", "choices", axes=1, bound_axis=1)}
        labels = Numbers() if self.kind == "regression" else Integers(self.num_labels, "labels", axes=1, classes=True)
        return ids | {"label_ids": labels}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of labels or answers, or the number."""
        activation = None if self.kind == "regression" else "softmax"
        return {"logits": Scores("classification_loss", activation, None if self.kind == "choice" else self.num_labels)}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The labels [B], numbers [B, 1]."""
        labels = inputs.get("label_ids")
        return {"logits": ops.reshape(labels, (-1, 1)) if self.kind == "regression" and labels is not None else labels}

    def lm_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]):
        """L1 of each example [B]: the mean over the tokens of its sequences."""
        sequences, choices = self.sequences(inputs)
        weights = self.gpt.loss_weights(sequences)["loss"]
        losses = cross_entropy("input_ids", self.gpt.labels(sequences), outputs["lm_logits"])
        weights = ops.cast(weights, losses.dtype)
        losses = ops.sum(losses * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1)  # [B * C]
        return losses if choices is None else ops.mean(ops.reshape(losses, (-1, choices)), axis=1)

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each example."""
        ones = ops.ones_like(ops.convert_to_tensor(inputs["input_ids"])[..., 0], self.variable_dtype)
        return dict.fromkeys(self.loss_names, ones if self.task == "classification" else ones[:, 0])

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """L2 of each label [B], and lambda * L1 of each example [B]."""
        labels, logits = inputs["label_ids"], outputs["logits"]
        if self.kind == "regression":
            loss = ops.square(ops.squeeze(logits, -1) - ops.cast(labels, logits.dtype))
        else:
            loss = cross_entropy("label_ids", labels, logits)
        lm_loss = self.lm_weight * self.lm_losses(inputs, outputs) if self.lm_weight else ops.zeros_like(loss)
        return {"classification_loss": loss, "lm_loss": lm_loss}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each label is right, and L1 itself."""
        weights = self.loss_weights(inputs)["lm_loss"]
        number = self.kind == "regression"
        right = ops.zeros_like(weights) if number else correct(inputs["label_ids"], outputs["logits"])
        lm = self.lm_losses(inputs, outputs) if self.lm_weight else ops.zeros_like(weights)
        return {"accuracy": (right, weights), "lm_cross_entropy": (lm, weights)}

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "num_labels": self.num_labels,
            "task": self.task,
            "lm_weight": self.lm_weight,
            "classifier_dropout": self.dropout.rate,
            "attention": self.gpt.get_config()["attention"],
        }
