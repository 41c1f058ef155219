"""How fast the tokenizers are, against the original's algorithm and Hugging Face's, on one core.

    python benchmarks/tokenization.py [--peer_python PATH] [--vocab_file PATH] [--repeats 5]

Text and vocabulary are taken from ../shared (or TF_BERT_DATA and TF_BERT_GOLDEN). Times are CPU seconds of the process,
the median of several runs that take turns. "Cold" is a new tokenizer whose memory for words is empty, "warm" the same
one on other text of the same kind. The original is stood in for by its algorithm written down character by character
(tests/plain_tokenizer.py). PATH is a Python that can ``import tokenizers`` (0.23 was compared); without it that
comparison is left out. The tokenizer in the graph gets batches of 1,000 lines.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import plain_tokenizer as plain  # noqa: E402

from tf_bert.tokenization import FullTokenizer  # noqa: E402

DATA = Path(os.environ.get("TF_BERT_DATA", ROOT.parent / "shared" / "data"))
GOLDEN = Path(os.environ.get("TF_BERT_GOLDEN", ROOT.parent / "shared" / "golden"))

PEER = """
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import BertWordPieceTokenizer
request = json.loads(sys.stdin.readline())
tokenizer = BertWordPieceTokenizer(request["vocab_file"], lowercase=True)
seconds = []
for lines in request["texts"]:
    start = time.process_time()
    for line in lines:
        ids = tokenizer.encode(line, add_special_tokens=False).ids
    seconds.append(time.process_time() - start)
print(json.dumps(seconds))
"""


def read(path, column=None):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    return [line if column is None else line.split("\t")[column] for line in lines if line]


def characters(lines):
    return sum(map(len, lines))


def front(lines, size):
    """The first ``size`` characters of lines, and the rest."""
    taken = 0
    for number, line in enumerate(lines):
        taken += len(line)
        if taken >= size:
            return lines[: number + 1], lines[number + 1 :]
    return lines, []


def timed(function, lines):
    start = time.process_time()
    for line in lines:
        function(line)
    return time.process_time() - start


def ours(vocab_file, texts):
    """Seconds to pieces for the first text, and to ids for each."""
    tokenizer = FullTokenizer(vocab_file)
    to_pieces = timed(tokenizer.tokenize, texts[0])
    tokenizer = FullTokenizer(vocab_file)
    return to_pieces, [timed(tokenizer.tokenize_to_ids, lines) for lines in texts]


def peer(python, vocab_file, texts):
    request = json.dumps({"vocab_file": str(vocab_file), "texts": texts})
    done = subprocess.run([python, "-c", PEER], input=request, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def against_others(name, texts, vocab_file, peer_python, repeats):
    """Our pieces against the plain algorithm's, our ids against Hugging Face's."""
    vocab = FullTokenizer(vocab_file).vocab
    sizes = [characters(lines) for lines in texts]
    print(f"\n{name}: {sizes[0] / 1e6:.1f} MB, then {sizes[1] / 1e6:.1f} MB")
    runs = []
    for _ in range(repeats):
        to_pieces, to_ids = ours(vocab_file, texts)
        of_plain = timed(lambda line: plain.tokenize(line, vocab), texts[0])
        of_peer = peer(peer_python, vocab_file, texts) if peer_python else None
        runs.append((to_pieces, of_plain, to_ids, of_peer))
    show("pieces, cold", "plain algorithm", sizes[0], [run[0] for run in runs], [run[1] for run in runs])
    if peer_python:
        for i, kind in enumerate(("cold", "warm")):
            mine, other = [run[2][i] for run in runs], [run[3][i] for run in runs]
            show(f"ids, {kind}", "Hugging Face tokenizers", sizes[i], mine, other)


def show(what, against, size, mine, other):
    """Prints the medians, and the median of the ratios within a run."""
    rates = [size / statistics.median(seconds) / 1e6 for seconds in (mine, other)]
    ratio = statistics.median(b / a for a, b in zip(mine, other, strict=True))
    print(f"  {what:28s} {rates[0]:6.2f} MB/s   {against:28s} {rates[1]:6.2f} MB/s   {ratio:5.2f} times")


def in_graph(name, lines, vocab_file, repeats):
    """The tokenizer in the graph against the one in Python, cold."""
    import tensorflow as tf

    from tf_bert.tokenization.in_graph import InGraphTokenizer

    layer = InGraphTokenizer(vocab_file)
    signature = [tf.TensorSpec([None], tf.string)]
    to_ids = tf.function(layer.tokenize, input_signature=signature)
    with_offsets = tf.function(layer.tokenize_with_offsets, input_signature=signature)
    batches = [tf.constant(lines[i : i + 1000]) for i in range(0, len(lines), 1000)]
    ascii_share = sum(map(str.isascii, lines)) / len(lines)
    print(f"\n{name}: {characters(lines) / 1e6:.1f} MB, {ascii_share:.0%} of the lines plain ASCII")
    for function in (to_ids, with_offsets):
        function(batches[0])
    runs = []
    for _ in range(repeats):
        python = ours(vocab_file, [lines])[1][0]
        tokenizer = FullTokenizer(vocab_file)
        python_offsets = timed(tokenizer.tokenize_with_offsets, lines)
        one_batch = ours(vocab_file, [lines[:1000]])[1][0]
        runs.append(
            (timed(to_ids, batches), python, timed(with_offsets, batches), python_offsets)
            + (timed(to_ids, batches[:1] * 10) / 10, one_batch)
        )
    size = characters(lines)
    columns = list(zip(*runs, strict=True))
    show("ids in the graph", "Python, cold", size, columns[0], columns[1])
    show("with offsets in the graph", "Python, cold", size, columns[2], columns[3])
    show("ids, a single batch", "Python, cold", characters(lines[:1000]), columns[4], columns[5])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", default=os.environ.get("PEER_PYTHON"))
    parser.add_argument("--vocab_file", default=GOLDEN / "vocab" / "vocab.txt")
    parser.add_argument("--repeats", type=int, default=5)
    flags = parser.parse_args()
    novels = read(DATA / "corpora" / "austen.txt.gz")
    descriptions = read(DATA / "corpora" / "debian_descriptions.txt.gz")
    french = front(read(DATA / "parallel" / "en-fr.tsv.gz", column=1), 3_200_000)[0]
    others = flags.vocab_file, flags.peer_python, flags.repeats
    novels_1, novels_2 = front(novels, characters(novels) // 2)
    descriptions_1, rest = front(descriptions, 3_200_000)
    descriptions_2 = front(rest, 3_200_000)[0]
    against_others("Novels", [novels_1, novels_2], *others)
    against_others("Descriptions of programs", [descriptions_1, descriptions_2], *others)
    both = [
        front(novel + other, 3_200_000)[0] for novel, other in ((novels_1, descriptions_1), (novels_2, descriptions_2))
    ]
    against_others("Both", both, *others)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    in_graph("Novels", novels, flags.vocab_file, flags.repeats)
    in_graph("French descriptions", french, flags.vocab_file, flags.repeats)


if __name__ == "__main__":
    main()
