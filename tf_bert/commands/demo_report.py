"""Report of ``tf-bert pretrain_demo``: the picture, the comparison with counting, filled masks, and the files."""

import os
import sys

from tf_bert.commands.deferred import deferred
from tf_bert.commands.fill_mask import print_fillings
from tf_bert.data.text.lines import read_lines

with deferred():
    from tf_bert.models import pretrained
    from tf_bert.training import callbacks, curves


def folder_for(corpus: str | None, short: bool = False) -> str:
    """The folder of a demo that is given none."""
    if short:  # a whole run that went on from its weights got 7 % right, not 30 %
        return folder_for(corpus) + "-short"
    if not corpus:
        return os.path.join("runs", "pretrain")
    first = os.path.basename(corpus.split(",")[0].rstrip("/")).split(".")[0]
    return os.path.join("runs", "pretrain-" + ("".join(c for c in first if c.isalnum() or c in "-_") or "corpus"))


def draw(run_dir: str, picture: str, accuracies: dict[str, float]) -> None:
    """Draws the curves, if matplotlib is installed."""
    try:
        curves.plot_curves(run_dir, picture, accuracies)
    except ImportError as error:
        print(f"no picture: {error}", file=sys.stderr)


def verdict(run_dir: str, accuracies: dict[str, float], steps: int) -> bool:
    """Compares the model with counting; returns whether its loss has fallen."""
    log = callbacks.read_log(run_dir)
    training = [line for line in log if "eval" not in line]
    held_out = [line["eval"] for line in log if "eval" in line]
    ours = held_out[-1]["masked_lm_accuracy"]
    print("\nMasked words of held-out documents that are right:")
    for name, accuracy in accuracies.items():
        counting = "always the most frequent token" if name == "most frequent token" else f"counting {name}"
        print(f"  {accuracy:6.1%}  {counting}")
    print(f"  {ours:6.1%}  BERT after {steps:,} steps")
    frequent, best = accuracies["most frequent token"], max(accuracies.values())
    print(f"  {ours / max(frequent, 1e-9):.1f} times the most frequent token; ", end="")
    print("better than counting" if ours > best else f"not yet better than counting ({best:.1%})")
    first, last = training[0]["loss"], training[-1]["loss"]
    print(f"Training loss: {first:.3f} at step {training[0]['step']:,}, {last:.3f} at the end")
    return last < first


def fill(export: str, heldout: str) -> None:
    """Fills a mask in three held-out sentences."""
    sentences = masked_sentences(heldout, pretrained.open_checkpoint(export).tokenizer())
    print("\nHeld-out sentences with a word masked (tf-bert fill_mask):")
    for masked, answer in sentences:
        print(f"\n[{answer}] is what is masked in:")
        print_fillings(export, [("the text", masked)], top_k=5)


def masked_sentences(path: str, tokenizer, count: int = 3) -> list[tuple[str, str]]:
    """Returns sentences of a file, each with [MASK] in place of a word that is one piece, and that word."""
    candidates = []
    for line in map(str.strip, read_lines(path)):
        pieces, offsets = tokenizer.tokenize_with_offsets(line)
        whole = [
            place
            for place in range(len(pieces) // 3, len(pieces) - 2)
            if pieces[place].isalpha() and not pieces[place + 1].startswith("##")
        ]
        if 8 <= len(pieces) <= 30 and whole:
            start, end = offsets[whole[len(candidates) % len(whole)]]
            candidates.append((f"{line[:start]}[MASK]{line[end:]}", line[start:end]))
    step = max(1, len(candidates) // count)
    return candidates[step // 2 :: step][:count]


def say_what_is_where(folder: str, run_dir: str, export: str, picture: str, steps: int, seconds: float) -> None:
    """Prints which files were made and which commands to run next."""
    with open(os.path.join(run_dir, "eval_results.txt"), encoding="utf-8") as file:
        step = next(line for line in file if line.startswith("global_step")).split("=")[1].strip()
    print(f"\nDone in {seconds / 60:.1f} minutes; step {step}. Everything is in {folder}:")
    for path, text in (
        ("train.txt, heldout.txt", "one sentence a line"),
        ("vocab.txt, bert_config.json", "the vocabulary and the sizes of the model"),
        ("train.tfrecord, heldout.tfrecord", "what the model reads"),
        (os.path.relpath(run_dir, folder) + "/", "checkpoints, training.jsonl, eval_results.txt"),
        (os.path.relpath(export, folder) + "/", "the trained model, laid out as Google's archives"),
        (os.path.relpath(picture, folder), "the curves"),
    ):
        print(f"  {path:<34}{text}")
    print("What to run next:")
    print(f"  tf-bert fill_mask --checkpoint={export} 'your text with a [MASK] in it'")
    print(f"  tensorboard --logdir={run_dir}")
    print("  make pretrain CORPUS=path/to/your/text")
    print(f"  python -c \"from tf_bert import Bert; Bert.from_checkpoint('{export}').summary()\"")
