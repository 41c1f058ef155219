"""Mix-ins that save and load models: by Keras from their configuration, and as checkpoints of any format."""

import os
from collections.abc import Mapping
from typing import Any, Self

import keras

from tf_bert.configs import Config


class Configured:
    """A model made from one configuration, which is saved with it. Stands before `Trainer` among the base classes.

    Attributes:
        config_class: the kind of configuration.
        config: the model's own.
    """

    config_class: type[Config]
    config: Config

    def get_config(self) -> dict[str, Any]:
        """What `from_config` needs."""
        return super().get_config() | {"config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None):
        """Makes the model, with fresh weights, from what `get_config` returned."""
        settings = keras.saving.deserialize_keras_object(config["config"], custom_objects)
        return cls(**config | {"config": cls.config_class.from_dict(settings)})


class Checkpointed:
    """What every BERT model, and GPT, can do with checkpoints (a mix-in).

    Attributes:
        load_report: what `from_checkpoint` loaded, missed and did not use; None otherwise.
        vocab_file: the vocabulary beside the checkpoint; None where there is none.
    """

    load_report = None
    vocab_file: str | None = None

    @classmethod
    def from_checkpoint(
        cls, path_or_name: str | os.PathLike, config: Config | None = None, strict: bool = True, **arguments: Any
    ) -> Self:
        """Makes the model with the weights of a checkpoint; the format is recognised by looking.

        Args:
            path_or_name: a folder laid out as Google's archives, as OpenAI's or as Hugging Face's, the prefix of a
                TensorFlow 1 checkpoint, a ``.keras`` or ``.weights.h5`` file, or a published model, such as
                ``"uncased_L-2_H-128_A-2"``, which is downloaded if need be (`tf-bert checkpoints list` shows all).
            config: sizes and rates, instead of those beside the checkpoint.
            strict: whether a variable of the encoder without a value is an error. A head without one starts fresh, and
                a warning says so.
            **arguments: for the class.

        Returns:
            The model; its ``load_report`` says what became of each variable.

        Raises:
            FileNotFoundError: nothing there.
            ValueError: the checkpoint is damaged, does not fit, or is of a kind that is not loaded (pickles).

        Example:
            >>> import tempfile
            >>> from tf_bert import Bert, BertConfig
            >>> bert = Bert(BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = bert.save_checkpoint(folder)
            ...     again = Bert.from_checkpoint(folder)
            >>> print(again.load_report)
            23 variables loaded
        """
        from tf_bert.models.pretrained import load_model

        return load_model(path_or_name, cls, config, strict, **arguments)

    def save_checkpoint(self, path: str | os.PathLike, format: str | None = None, tokenizer=None) -> str:
        """Writes the model so that `from_checkpoint` loads it again, with its vocabulary and casing.

        Args:
            path: a folder, or a file that ends in ``.keras`` or ``.weights.h5``.
            format: of a folder: ``"google"`` (``bert_model.ckpt``, ``bert_config.json``), the default of BERT;
                ``"huggingface"`` (``model.safetensors``, ``config.json``), that of GPT; or ``"openai"``
                (``model.ckpt``, ``hparams.json``), which GPT-2 may have.
            tokenizer: the `tf_bert.tokenization.full.FullTokenizer` to put beside it, by default the one that the model
                was loaded with.

        Returns:
            The path.
        """
        from tf_bert.models.pretrained import save_model

        return save_model(self, path, format, tokenizer)

    @classmethod
    def arguments_for(cls, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """The arguments of the class that a checkpoint's variables (name -> shape) settle, such as ``num_labels``."""
        return {}

    @classmethod
    def noted_arguments(cls, config: Config) -> dict[str, Any]:
        """The arguments of the class that `to_note` put into a configuration."""
        return {}

    def to_note(self) -> dict[str, Any]:
        """What a configuration beside the weights has to say of the model, but its sizes."""
        return {}
