"""Errors of the system in one line that names the file and gives the reason in words."""

import errno
import os
import re

# Of what can happen while a file is written, and what the system's own words leave open.
_WORDS = {
    errno.ENOSPC: "no room left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "",
    errno.EIO: "the disk failed",
    errno.EROFS: "",
}


def reason_in_words(error: BaseException) -> str:
    """Returns why the system refused something, with its own words in brackets.

    Args:
        error: an ``OSError``, or an error of a library (TensorFlow, h5py) whose text quotes the system.

    Example:
        >>> reason_in_words(OSError(errno.ENOSPC, "No space left on device"))
        'no room left on the disk (No space left on device)'
        >>> reason_in_words(RuntimeError("write failed: errno = 28, error message = 'No space left on device'"))
        'no room left on the disk (No space left on device)'
    """
    text = reason_of(error) if hasattr(error, "message") else getattr(error, "strerror", None) or str(error)
    return system_reason(text) or text


def system_reason(text: str) -> str | None:
    """Finds in the text of an error what the system said of a disk; None where it said nothing."""
    for number, words in _WORDS.items():
        said = os.strerror(number)
        if said in text:
            return f"{words} ({said})" if words else said
    return None


def named(error: OSError, message: str) -> OSError:
    """Returns the same error with one line that says which file was meant."""
    same = type(error)(f"{message}: {reason_in_words(error)}")
    same.errno = error.errno
    return same


def reason_of(error) -> str:
    """Returns the text of TensorFlow's error (``tf.errors.OpError``) without the names of TensorFlow's own parts."""
    return re.sub(r"\{\{.*?\}\}|\[Op:.*?\]( name:)?", "", error.message).strip()
