"""What all commands that evaluate do with the figures."""

import os
from collections.abc import Mapping


def write_and_show(output_dir: str, figures: Mapping[str, float], global_step: int) -> None:
    """Writes ``eval_results.txt``, as the original, and prints it."""
    from tf_bert.training.runs import write_eval_results

    path = os.path.join(output_dir, "eval_results.txt")
    write_eval_results(path, figures, global_step)
    print(f"***** Eval results ***** ({path})")
    with open(path, encoding="utf-8") as file:
        print(file.read(), end="")
