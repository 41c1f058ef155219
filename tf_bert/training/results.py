"""What a run found out, written as the original writes it."""

import os
from collections.abc import Mapping

from tf_bert.files import atomic_writer


def write_eval_results(path: str | os.PathLike, figures: Mapping[str, float], global_step: int) -> None:
    """Writes ``eval_results.txt``: one ``key = value`` a line, keys sorted."""
    with atomic_writer(path, "w") as file:
        for key, value in sorted({**figures, "global_step": global_step}.items()):
            file.write(f"{key} = {value!s}\n")
