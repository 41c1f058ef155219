"""The flag ``--stop`` of the commands that generate text."""

import re

from tf_bert.commands.flags import Flags, UsageError

_ESCAPES = {"n": "\n", "t": "\t", "|": "|", "\\": "\\"}


def add_stop_flag(flags: Flags, more: str = "") -> None:
    """Adds ``--stop``; ``more`` is put behind its help."""
    flags.string(
        "stop",
        None,
        "Text that ends the output as soon as the output holds it, however its tokens fall, or several with | between; "
        f"\\n is the end of a line, \\t a tab, \\| the character |, and \\\\ a backslash.{more}",
    )


def stops_of(flag: str | None) -> list[str]:
    """Returns the stop texts of a flag, none without one.

    Raises:
        UsageError: one of them is empty.

    Example:
        >>> stops_of(r"\\n\\n|a\\|b")
        ['\\n\\n', 'a|b']
    """
    if flag is None:
        return []
    texts = [""]
    for part in re.findall(r"\\.|.", flag, re.DOTALL):
        if part == "|":
            texts.append("")
        else:
            texts[-1] += _ESCAPES.get(part[1:], part) if len(part) == 2 else part
    if not all(texts):
        raise UsageError(
            f"--stop={flag}: a stop text is empty; texts have | between them, and \\| is the character itself"
        )
    return texts
