"""How fast GPT-2's tokenizer is, against tiktoken's and Hugging Face's, on one core.

    python benchmarks/byte_pair.py --peer_python PATH [--repeats 5] [--in_graph]

Text and vocabulary are taken from ../shared/data (or TF_BERT_DATA). PATH is a Python that can ``import tiktoken,
tokenizers`` (0.14 and 0.23 were compared). Times are CPU seconds of the process, the median of runs that take turns.
"Cold" is a new tokenizer whose memory for words is empty, on four novels (2.7 MB); "warm" one that has read half of
them, on the other half. The ids of all must be equal.
"""

import argparse
import gzip
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tf_bert.tokenization import GPT2Tokenizer  # noqa: E402

DATA = Path(os.environ.get("TF_BERT_DATA", ROOT.parent / "shared" / "data"))
CORPUS, VOCABULARY = DATA / "corpora" / "austen.txt.gz", DATA / "vocab" / "gpt2"

PEER = r"""
import gzip, hashlib, json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import ByteLevelBPETokenizer

corpus, vocabulary = sys.argv[1:]
text = gzip.open(corpus, "rt", encoding="utf-8").read()
lines = text.split("\n")
texts = [text, "\n".join(lines[: len(lines) // 2]), "\n".join(lines[len(lines) // 2 :])]
files = vocabulary + "/encoder.json", vocabulary + "/vocab.bpe"
pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
ranks = data_gym_to_mergeable_bpe_ranks(files[1], files[0])
one = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
other = ByteLevelBPETokenizer(*files)
answer = {}
for name, encode in (("tiktoken", one.encode_ordinary), ("tokenizers", lambda text: other.encode(text).ids)):
    seconds, digests = [], []
    for half in texts:
        start = time.process_time()
        ids = encode(half)
        seconds.append(time.process_time() - start)
        digests.append(hashlib.sha256(json.dumps(ids).encode()).hexdigest())
    answer[name] = seconds, digests
print(json.dumps(answer))
"""


def corpus():
    """All of it, its first and its second half."""
    text = gzip.open(CORPUS, "rt", encoding="utf-8").read()
    lines = text.split("\n")
    return [text, "\n".join(lines[: len(lines) // 2]), "\n".join(lines[len(lines) // 2 :])]


def ours(texts):
    tokenizer = GPT2Tokenizer(VOCABULARY)
    seconds, digests = [], []
    for number, text in enumerate(texts):
        if number == 1:
            tokenizer = GPT2Tokenizer(VOCABULARY)
        start = time.process_time()
        ids = tokenizer.tokenize_to_ids(text)
        seconds.append(time.process_time() - start)
        digests.append(hashlib.sha256(json.dumps(ids).encode()).hexdigest())
    return seconds, digests


def in_graph(texts):
    import tensorflow as tf

    from tf_bert.tokenization.in_graph_bpe import InGraphBytePairTokenizer

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    layer = InGraphBytePairTokenizer(VOCABULARY)
    lines = texts[0].split("\n")
    batches = [tf.constant(lines[i : i + 1000]) for i in range(0, len(lines), 1000)]
    layer.tokenize(batches[0])
    start = time.process_time()
    for batch in batches:
        layer.tokenize(batch)
    print(f"in the graph, lines in batches of 1,000: {len(texts[0]) / (time.process_time() - start) / 1e6:.2f} MB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer_python", default=os.environ.get("PEER_PYTHON"), required="PEER_PYTHON" not in os.environ
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--in_graph", action="store_true")
    flags = parser.parse_args()
    texts = corpus()
    command = [flags.peer_python, "-c", PEER, str(CORPUS), str(VOCABULARY)]
    runs = []
    for _ in range(flags.repeats):
        answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        runs.append({"ours": ours(texts), **answer})
    for i, kind in ((0, "cold"), (2, "warm")):
        for name in ("tiktoken", "tokenizers"):
            assert all(run[name][1][i] == run["ours"][1][i] for run in runs), f"ids differ from those of {name}"
            mine, other = ([run[key][0][i] for run in runs] for key in ("ours", name))
            rates = [len(texts[i]) / statistics.median(seconds) / 1e6 for seconds in (mine, other)]
            ratio = statistics.median(b / a for a, b in zip(mine, other, strict=True))
            print(f"{kind}: {rates[0]:5.2f} MB/s, {name} {rates[1]:5.2f} MB/s: {ratio:5.2f} times; identical ids")
    if flags.in_graph:
        in_graph(texts)


if __name__ == "__main__":
    main()
