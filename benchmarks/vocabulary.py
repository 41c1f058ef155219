"""Vocabularies of `tf-bert train_vocab` against those of Hugging Face's WordPiece trainer.

Both learn from the same nine tenths of a text (every tenth document or paragraph is held out) and are used by the same
tokenizer. Reported are the pieces per held-out word and the CPU seconds of each training.

Run:
    python -m venv peers && peers/bin/pip install tokenizers
    python benchmarks/vocabulary.py --peer=peers/bin/python --text corpus.txt.gz --sizes=2000,8000
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tf_bert.data.text.lines import read_lines
from tf_bert.tokenization.basic import BasicTokenizer
from tf_bert.tokenization.vocabulary import load_vocab
from tf_bert.tokenization.vocabulary_training import WordCounts, build_vocabulary
from tf_bert.tokenization.wordpiece import WordpieceTokenizer

PEER = """
import sys, time
from tokenizers import BertWordPieceTokenizer
text, vocab_file, size, lower = sys.argv[1:]
start = time.process_time()
tokenizer = BertWordPieceTokenizer(lowercase=lower == "True")
tokenizer.train([text], vocab_size=int(size), show_progress=False)
print(time.process_time() - start)
vocab = tokenizer.get_vocab()
with open(vocab_file, "w", encoding="utf-8") as file:
    file.writelines(piece + chr(10) for piece in sorted(vocab, key=vocab.get))
"""


def split(path: str) -> tuple[list[str], list[str]]:
    """The lines to learn from, and those of every tenth block between blank lines."""
    parts, blocks = ([], []), 0
    for line in read_lines(path):
        blocks += not line
        parts[blocks % 10 == 9].append(line)
    return parts


def pieces_per_word(vocab, words: WordCounts) -> float:
    wordpiece = WordpieceTokenizer(vocab)
    return sum(count * len(wordpiece.split_word(word)) for word, count in words.words.items()) / words.num_words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python that has tokenizers")
    parser.add_argument("--text", required=True, nargs="+")
    parser.add_argument("--sizes", default="2000,8000,30000")
    parser.add_argument("--do_lower_case", default=True, type=lambda text: text.lower() == "true")
    arguments = parser.parse_args()
    tokenizer = BasicTokenizer(arguments.do_lower_case)
    print(f"{'text':<28}{'size':>8}{'ours':>10}{'peer':>10}{'ratio':>8}{'CPU s':>9}{'peer':>8}")
    for path in arguments.text:
        train, held_out = split(path)
        held_out = WordCounts(tokenizer).count(held_out)
        for size in map(int, arguments.sizes.split(",")):
            start = time.process_time()
            vocab = build_vocabulary(WordCounts(tokenizer).count(train), size, tokenizer=tokenizer, num_unused=0)
            seconds = time.process_time() - start
            with tempfile.TemporaryDirectory() as folder:
                text, vocab_file = os.path.join(folder, "text"), os.path.join(folder, "vocab.txt")
                with open(text, "w", encoding="utf-8", newline="\n") as file:
                    file.write("\n".join(train))
                command = [arguments.peer, "-c", PEER, text, vocab_file, str(size), str(arguments.do_lower_case)]
                peer_seconds = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                peer_vocab = load_vocab(vocab_file)
            assert len(vocab) == len(peer_vocab), (len(vocab), len(peer_vocab))
            ours, peer = pieces_per_word(vocab, held_out), pieces_per_word(peer_vocab, held_out)
            print(
                f"{os.path.basename(path):<28}{size:>8}{ours:>10.4f}{peer:>10.4f}{ours / peer:>8.4f}"
                f"{seconds:>9.2f}{peer_seconds:>8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
