"""Loads TensorFlow without the messages that its libraries write while they load."""

import os
import sys
import tempfile

NVIDIA_DRIVER = "/proc/driver/nvidia"


def load_tensorflow() -> None:
    """Imports TensorFlow and looks for devices; call it in a command before anything that imports TensorFlow.

    Its libraries write to file descriptor 2 before they heed ``TF_CPP_MIN_LOG_LEVEL``, also that there is no GPU. What
    they wrote is held back, and shown only where it matters: when TensorFlow cannot be loaded, and when this machine
    has a GPU that it does not find. ``TF_CPP_MIN_LOG_LEVEL=0`` holds back nothing.
    """
    if "tensorflow" in sys.modules or os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as notes:
        os.dup2(notes.fileno(), 2)
        matters = True
        try:
            import tensorflow as tf

            matters = not tf.config.list_physical_devices("GPU") and os.path.exists(NVIDIA_DRIVER)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            if matters:
                notes.seek(0)
                os.write(2, notes.read())
