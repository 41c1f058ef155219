"""What all commands that evaluate do with the figures."""

import os
from collections.abc import Mapping

from tf_bert.commands.deferred import deferred

with deferred():
    from tf_bert.training import results


def write_and_show(output_dir: str, figures: Mapping[str, float], global_step: int) -> None:
    """Writes ``eval_results.txt``, as the original, and prints it."""
    path = os.path.join(output_dir, "eval_results.txt")
    results.write_eval_results(path, figures, global_step)
    print(f"***** Eval results ***** ({path})")
    with open(path, encoding="utf-8") as file:
        print(file.read(), end="")
