"""Making pre-training data: records per CPU second, peak memory, two workers against one.

Each run is a process of its own; CPU time and peak memory are what the system says of it and of its workers. The text
is the English prose of ``../shared/data/corpora`` (or ``TF_BERT_DATA``), one sentence a line; where more is asked for
than there is, it comes again with the words of each sentence rotated, so that the lines differ.

Run: python benchmarks/data_creation.py [exact] [dupe] [sharded] [flat] [reading] [--work=FOLDER] [--megabytes=11.4]
    exact    records per CPU second against the plain way (on a tenth of the text), and peak memory
    dupe     peak memory at dupe_factor 1, 10 and 40
    sharded  wall time with one worker and with two; on a busy machine look at the CPU time of parent and workers
    flat     sharded mode on 10 MB and on 200 MB, dupe_factor 2: peak memory (some minutes)
    reading  records per CPU second of the batches that training gets, with masks in the records and masked afresh
"""

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHARED = os.path.join(os.path.dirname(ROOT), "shared")
CORPORA = os.path.join(os.environ.get("TF_BERT_DATA", os.path.join(SHARED, "data")), "corpora")
VOCAB = os.path.join(os.environ.get("TF_BERT_GOLDEN", os.path.join(SHARED, "golden")), "vocab", "vocab.txt")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"”’)]?\s+(?=[\"“‘(A-Z0-9])")


def read_documents() -> list[list[str]]:
    """Novels in pieces of twenty paragraphs, package descriptions by the ten."""
    documents = []
    for name, together in (("austen", 20), ("debian_descriptions", 10)):
        with gzip.open(os.path.join(CORPORA, f"{name}.txt.gz"), "rt", encoding="utf-8") as file:
            paragraphs = [" ".join(paragraph.split()) for paragraph in file.read().split("\n\n")]
        for start in range(0, len(paragraphs), together):
            sentences = SENTENCE_END.split(" ".join(paragraphs[start : start + together]))
            documents.append([sentence for sentence in sentences if sentence.strip()])
    return documents


def write_prose(path: str, megabytes: float) -> None:
    """Writes this much text."""
    documents, size, turn = read_documents(), 0, 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        while size < megabytes * 1e6:
            for document in documents:
                lines = []
                for sentence in document:
                    words = sentence.split()
                    place = turn % len(words)
                    lines.append(" ".join(words[place:] + words[:place]))
                size += file.write("\n".join(lines) + "\n\n")
                if size >= megabytes * 1e6:
                    break
            turn += 1


def run(*command: str) -> dict[str, float]:
    """Runs a command to its end; the figures are those of the process and its workers."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return {
        "wall": time.perf_counter() - start,
        "cpu": usage.ru_utime + usage.ru_stime,
        "MB": usage.ru_maxrss / 1024,  # of the largest process
        "output": output,
    }


TIMED = """
import resource, sys
from tf_bert.commands.create_pretraining_data import main
if __name__ == "__main__":
    status = main()
    parent, workers = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(parent.ru_utime + parent.ru_stime, workers.ru_utime + workers.ru_stime)
    sys.exit(status)
"""


def create(text: str, output: str, *flags: str) -> dict[str, float]:
    """Makes data of length 128; adds the number of records to the figures."""
    folder, name = os.path.split(output)
    program = os.path.join(folder, "timed.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write(f"import sys; sys.path.insert(0, {ROOT!r})\n" + TIMED)
    figures = run(program, f"--input_file={text}", f"--vocab_file={VOCAB}", f"--output_file={output}", *flags)
    figures["parent"], figures["workers"] = map(float, figures["output"].split()[-2:])
    sidecars = [file for file in os.listdir(folder) if file.startswith(name) and file.endswith(".json")]
    figures["records"] = 0
    for file in sidecars:
        with open(os.path.join(folder, file), encoding="utf-8") as sidecar:
            figures["records"] += json.load(sidecar)["records"]
        for path in (file, file.removesuffix(".json")):
            os.remove(os.path.join(folder, path))
    return figures


def exact(work: str, megabytes: float) -> None:
    text, tenth = os.path.join(work, "prose.txt"), os.path.join(work, "tenth.txt")
    write_prose(text, megabytes)
    write_prose(tenth, megabytes / 10)
    rows = []
    for _ in range(3):
        ours = create(tenth, os.path.join(work, "ours"))
        plain = run(os.path.join(ROOT, "benchmarks", "plain_data_creation.py"), tenth, VOCAB, f"{work}/plain", "10")
        count, seconds = map(float, plain["output"].split()[-2:])
        assert count == ours["records"]
        rows.append((ours["records"] / ours["cpu"], count / seconds, plain["MB"], ours["MB"]))
    rows.sort(key=lambda row: row[0] / row[1])
    rate, plain_rate, plain_memory, memory = rows[1]
    print(f"{megabytes / 10:.2f} MB: {rate:,.0f} records per CPU second, {memory:.0f} MB")
    print(f"    the plain way: {plain_rate:,.0f} and {plain_memory:.0f} MB; {rate / plain_rate:.1f} times as fast")
    whole = create(text, os.path.join(work, "ours"))
    print(
        f"{megabytes:.1f} MB: {whole['records']:,} records in {whole['cpu']:.0f} CPU seconds, "
        f"{whole['records'] / whole['cpu']:,.0f} a CPU second, {whole['MB']:.0f} MB"
    )


def dupe(work: str, megabytes: float) -> None:
    text = os.path.join(work, "made_up.txt")
    rng = random.Random(0)
    words = [line.split()[0] for line in open(VOCAB, encoding="utf-8") if line[0].isalpha()]
    with open(text, "w", encoding="utf-8") as file:
        for _ in range(400):
            file.writelines(" ".join(rng.choices(words[:5000], k=20)) + "\n" for _ in range(25))
            file.write("\n")
    first = None
    for factor in (1, 10, 40):
        figures = create(text, os.path.join(work, "dupe"), f"--dupe_factor={factor}")
        first = first or figures["MB"]
        print(
            f"dupe_factor {factor}: {figures['records']:,} records, {figures['MB']:.0f} MB, {figures['MB'] / first:.2f}"
        )


def sharded(work: str, megabytes: float) -> None:
    text = os.path.join(work, "prose.txt")
    write_prose(text, megabytes)
    ratios, cpu_ratios = [], []
    for _ in range(3):
        figures = {}
        for workers in (1, 2):
            flags = ("--sharded", "--num_shards=8", f"--num_workers={workers}")
            figures[workers] = one = create(text, f"{work}/sharded{workers}", *flags)
            print(
                f"sharded, {workers} workers: {one['records']:,} records in {one['wall']:.1f} s; CPU seconds: "
                f"{one['parent']:.1f} in the parent, {one['workers']:.1f} in workers; {one['MB']:.0f} MB",
                flush=True,
            )
        ratios.append(figures[1]["wall"] / figures[2]["wall"])
        cpu_ratios.append(figures[1]["parent"] / (figures[2]["parent"] + figures[2]["workers"] / 2))
    print(f"two workers are {sorted(ratios)[1]:.2f} times as fast as one (wall time, median of three);")
    print(f"by CPU time, with a core for each worker and none for the parent: {sorted(cpu_ratios)[1]:.2f}")


def flat(work: str, megabytes: float) -> None:
    text = os.path.join(work, "large.txt")
    for size in (10, 200):
        write_prose(text, size)
        figures = create(text, f"{work}/flat", "--sharded", "--num_shards=16", "--num_workers=2", "--dupe_factor=2")
        print(
            f"{size} MB: {figures['records']:,} records in {figures['wall']:.0f} s, {figures['cpu']:.0f} CPU seconds, "
            f"{figures['MB']:.0f} MB in the largest process",
            flush=True,
        )


READING = """
import sys, time
from tf_bert.data.pretraining.input import find_records, train_dataset
batches = iter(train_dataset(find_records(sys.argv[1], 128, 20), 32))
for _ in range(320):  # fills the buffer
    next(batches)
start = time.process_time()
for _ in range(1500):
    next(batches)
print(1500 * 32 / (time.process_time() - start))
"""


def reading(work: str, megabytes: float) -> None:
    text = os.path.join(work, "tenth.txt")
    write_prose(text, megabytes / 10)
    for masking in ("static", "dynamic"):
        output = os.path.join(work, masking)
        create_command = os.path.join(ROOT, "tools", "create_pretraining_data.py")
        flags = (f"--input_file={text}", f"--vocab_file={VOCAB}", f"--output_file={output}", f"--masking={masking}")
        run(create_command, *flags)
        program = os.path.join(work, "reading.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"import sys; sys.path.insert(0, {ROOT!r})\n" + READING)
        rate = float(run(program, output)["output"].split()[-1])
        print(f"reading, {masking} masks: {rate:,.0f} records per CPU second", flush=True)


def main() -> None:
    parts = {"exact": exact, "dupe": dupe, "sharded": sharded, "flat": flat, "reading": reading}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=" ".join(parts))
    parser.add_argument("--work", help="folder for text and records; a temporary one by default")
    parser.add_argument("--megabytes", type=float, default=11.4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        for part in arguments.parts or ["exact", "dupe", "sharded"]:
            parts[part](work, arguments.megabytes)


if __name__ == "__main__":
    main()
