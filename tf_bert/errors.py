"""Errors of layers and models as plain lines, without what Keras adds: colours, and the arguments of the call."""

import re

# What Keras makes of an error that is raised in a layer's call; the message is between the colour codes.
_DECORATED = re.compile(
    r"Exception encountered when calling .*?\n\n\x1b\[1m(.*)\x1b\[0m\n\nArguments received", re.DOTALL
)


def plain_message(message: str) -> str:
    r"""The message that was raised, of one that Keras has decorated.

    Example:
        >>> plain_message("Exception encountered when calling f.\n\n\x1b[1mno\x1b[0m\n\nArguments received by f:")
        'no'
    """
    found = _DECORATED.match(message)
    return found[1] if found else message


class PlainErrors:
    """A layer whose errors are as they were raised; stands before `keras.layers.Layer` among the base classes.

    Keras leaves an error alone that it has decorated once, so a layer that contains this one adds nothing.
    """

    def __call__(self, *args, **kwargs):
        """Calls the layer."""
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            if error.args and isinstance(error.args[0], str):
                error.args = (plain_message(error.args[0]), *error.args[1:])
            if isinstance(getattr(error, "message", None), str):  # TensorFlow's keep it here
                error._message = plain_message(error.message)
            raise
