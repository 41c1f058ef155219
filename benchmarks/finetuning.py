"""What fine-tuning a small published model gives, on small real data, through the commands.

Film reviews from the published weights of bleurt-tiny (2 layers of width 128) and from random weights of the same
sizes, the same batches in the same run; intents, named entities and questions from the published weights. Three seeds,
a fifth of each data set held out (for questions a quarter of the documents).

Run: python benchmarks/finetuning.py [--data=../shared/data] [--seeds=3] [--tasks=reviews,intents,entities,questions]
"""

import argparse
import contextlib
import io
import json
import os
import random
import statistics
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from tf_bert.commands import run_classifier, run_squad  # noqa: E402


def held_out(rows: list, share: float = 0.2) -> tuple[list, list]:
    """Rows to train on and rows to evaluate on, always the same."""
    rows = list(rows)
    random.Random(1).shuffle(rows)
    count = int(len(rows) * share)
    return rows[count:], rows[:count]


def lines(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return [line for line in file.read().split("\n") if line]


def run(command, *arguments: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        status = command.main(list(arguments))
    if status:
        sys.exit(said.getvalue()[-2000:])


def figure(folder: str, name: str) -> float:
    """A line of eval_results.txt, in percent where it is a share."""
    values = dict(line.split(" = ") for line in lines(os.path.join(folder, "eval_results.txt")))
    return float(values[name])


def classification(data: str, name: str, folder: str) -> list[str]:
    """Writes train.tsv and dev.tsv, and returns the flags."""
    for split, rows in zip(("train", "dev"), held_out(lines(os.path.join(data, "starter", name))), strict=True):
        with open(os.path.join(folder, f"{split}.tsv"), "w", encoding="utf-8") as file:
            file.write("label\ttext\n" + "\n".join(row.replace('"', "''") for row in rows) + "\n")
    files = [f"--{split}_file={folder}/{split}.tsv" for split in ("train", "dev")]
    return ["--task_name=csv", *files, "--max_seq_length=64", "--do_train", "--do_eval", "--eval_batch_size=64"]


def reviews(data, start, folder, seed, weights=True) -> float:
    flags = classification(data, "sentiment_rt_2000.tsv", folder)
    flags += ["--num_train_epochs=4", "--learning_rate=3e-4", f"--seed={seed}", *start(weights)]
    run(run_classifier, *flags, f"--output_dir={folder}/run")
    return 100 * figure(f"{folder}/run", "eval_accuracy")


def intents(data, start, folder, seed) -> float:
    flags = classification(data, "intent_snips_693.tsv", folder)
    flags += ["--num_train_epochs=12", "--learning_rate=1e-3", f"--seed={seed}", *start(True)]
    run(run_classifier, *flags, f"--output_dir={folder}/run")
    return 100 * figure(f"{folder}/run", "eval_accuracy")


def entities(data, start, folder, seed) -> float:
    from tf_bert.commands import run_ner

    with open(os.path.join(data, "starter", "ner_wnut_400.conll"), encoding="utf-8") as file:
        sentences = [sentence for sentence in file.read().split("\n\n") if sentence.strip()]
    tags = sorted({line.split()[-1] for sentence in sentences for line in sentence.splitlines() if line.strip()})
    for split, part in zip(("train", "dev"), held_out(sentences), strict=True):
        with open(os.path.join(folder, f"{split}.conll"), "w", encoding="utf-8") as file:
            file.write("\n\n".join(part) + "\n")
    flags = [f"--train_file={folder}/train.conll", f"--dev_file={folder}/dev.conll", "--do_train", "--do_eval"]
    flags += ["--max_seq_length=64", "--num_train_epochs=40", "--learning_rate=3e-4", "--train_batch_size=16"]
    flags += [f"--seed={seed}", *start(True)]
    flags.append(f"--labels={','.join(tags)}")  # some are in the held-out sentences alone
    run(run_ner, *flags, f"--output_dir={folder}/run")
    return 100 * figure(f"{folder}/run", "eval_f1")


def questions(data, start, folder, seed) -> float:
    with open(os.path.join(data, "starter", "squad_superbowl_12_paragraphs.json"), encoding="utf-8") as file:
        found = json.load(file)
    paragraphs = [paragraph for article in found["data"] for paragraph in article["paragraphs"]]
    for split, part in zip(("train", "dev"), held_out(paragraphs, 0.25), strict=True):
        with open(os.path.join(folder, f"{split}.json"), "w", encoding="utf-8") as file:
            json.dump({"version": "1.1", "data": [{"title": "", "paragraphs": part}]}, file)
    flags = [f"--train_file={folder}/train.json", f"--predict_file={folder}/dev.json", "--do_train", "--do_predict"]
    flags += ["--first_answer", "--max_seq_length=256", "--num_train_epochs=15", "--learning_rate=1e-3"]
    run(run_squad, *flags, "--train_batch_size=16", f"--seed={seed}", *start(True), f"--output_dir={folder}/run")
    return figure(f"{folder}/run", "f1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.join(ROOT, "..", "shared", "data"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", default="reviews,intents,entities,questions")
    options = parser.parse_args()
    model = os.path.join(options.data, "models", "bleurt-tiny")

    def start(weights: bool) -> list[str]:
        flags = [f"--bert_config_file={model}/bert_config.json", f"--vocab_file={model}/vocab.txt", "--group_by_length"]
        return flags + [f"--init_checkpoint={model}/variables/variables"] * weights

    def measure(name, what, task, **arguments):
        values = []
        for seed in range(1, options.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                values.append(task(options.data, start, folder, seed, **arguments))
        shown = " ".join(f"{value:.1f}" for value in values)
        print(f"{name:40} {what:9} mean {statistics.mean(values):5.1f}   {shown}", flush=True)
        return statistics.mean(values)

    chosen = options.tasks.split(",")
    if "reviews" in chosen:
        published = measure("film reviews, published weights", "accuracy", reviews)
        fresh = measure("film reviews, random weights", "accuracy", reviews, weights=False)
        print(f"{'':40} {published - fresh:+.1f} points")
    for name, task in (("intents", intents), ("entities", entities), ("questions", questions)):
        if name in chosen:
            measure(f"{name}, published weights", "accuracy" if name == "intents" else "F1", task)


if __name__ == "__main__":
    main()
