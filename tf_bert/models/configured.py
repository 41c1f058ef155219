"""Saving and loading of models that are made from a configuration."""

from typing import Any

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
