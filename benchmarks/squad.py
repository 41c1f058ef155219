"""SQuAD post-processing: answers from the scores of windows, against a plain re-statement of the original's way.

Documents of made-up words; scores with a few peaks a window. Both sides write the three files, which must be equal to
the byte. CPU time of one process each, in turn, medians.

Run: python benchmarks/squad.py [--windows=10000] [--rounds=3]
"""

import argparse
import collections
import filecmp
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests")]

import plain_tokenizer  # noqa: E402

from tf_bert.data.finetuning.squad import SquadExample, convert_examples_to_features  # noqa: E402
from tf_bert.data.finetuning.squad_predictions import RawResult, write_predictions  # noqa: E402
from tf_bert.tokenization import FullTokenizer, save_vocab  # noqa: E402

S, N_BEST, MAX_ANSWER = 384, 20, 30


def make_questions(windows: int, folder: str):
    """Questions, their windows, and scores of all windows."""
    rng = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(5000)]
    vocab_file = os.path.join(folder, "vocab.txt")
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    pieces = dict.fromkeys([*words[:3000], *syllables, *("##" + s for s in syllables), *alphabet, *".,()'"])
    save_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *("##" + c for c in alphabet)], vocab_file)
    tokenizer = FullTokenizer(vocab_file)

    def document() -> list[str]:
        tokens = rng.choices(words, k=rng.choice([80, 120, 150, 400]))
        for i in range(0, len(tokens), 7):
            tokens[i] = rng.choice([tokens[i].title(), f"({tokens[i]})", tokens[i] + ",", tokens[i] + "'s."])
        return tokens

    examples, features = [], []
    while len(features) < windows:
        batch = [
            SquadExample(f"q{len(examples) + i}", " ".join(rng.choices(words, k=10)), document()) for i in range(50)
        ]
        found = []
        convert_examples_to_features(batch, tokenizer, S, 128, 64, False, found.append)
        for feature in found:
            feature.unique_id, feature.example_index = len(features), feature.example_index + len(examples)
            features.append(feature)
        examples += batch
    generator = np.random.default_rng(1)
    scores = generator.normal(-3, 1.5, (2, len(features), S)).astype(np.float32)
    for i, feature in enumerate(features):
        places = np.sort(generator.choice(list(feature.token_to_orig_map), 6))
        scores[0, i, places[:4]] += 8
        scores[1, i, places[2:]] += 8
    results = [RawResult(f.unique_id, scores[0, i], scores[1, i]) for i, f in enumerate(features)]
    return examples, features, results


def plain_final_text(pred_text: str, orig_text: str) -> str:
    tok_text = " ".join(plain_tokenizer.basic(orig_text))
    start = tok_text.find(pred_text)
    if start == -1:
        return orig_text
    end = start + len(pred_text) - 1

    def without_blanks(text):
        kept, places = [], {}
        for i, char in enumerate(text):
            if char != " ":
                places[len(kept)] = i
                kept.append(char)
        return "".join(kept), places

    orig, orig_places = without_blanks(orig_text)
    tok, tok_places = without_blanks(tok_text)
    if len(orig) != len(tok):
        return orig_text
    back = {place: i for i, place in tok_places.items()}
    if start not in back or end not in back:
        return orig_text
    return orig_text[orig_places[back[start]] : orig_places[back[end]] + 1]


def plain_predictions(examples, features, results, paths) -> None:
    """What the original's ``write_predictions`` does, one window, start and end after the other; version 2."""
    windows = collections.defaultdict(list)
    for feature in features:
        windows[feature.example_index].append(feature)
    by_id = {result.unique_id: result for result in results}
    predictions, all_nbest, null_odds = {}, {}, {}

    def best_indexes(logits):
        ranked = sorted(enumerate(logits), key=lambda pair: pair[1], reverse=True)
        return [i for i, _ in ranked[:N_BEST]]

    for number, example in enumerate(examples):
        candidates = []
        least, null = 1000000, None
        for feature in windows[number]:
            start_logits = [float(x) for x in by_id[feature.unique_id].start_logits]
            end_logits = [float(x) for x in by_id[feature.unique_id].end_logits]
            starts, ends = best_indexes(start_logits), best_indexes(end_logits)
            if start_logits[0] + end_logits[0] < least:
                least = start_logits[0] + end_logits[0]
                null = (feature, 0, 0, start_logits[0], end_logits[0])
            for start in starts:
                for end in ends:
                    if start >= len(feature.tokens) or end >= len(feature.tokens):
                        continue
                    if start not in feature.token_to_orig_map or end not in feature.token_to_orig_map:
                        continue
                    if not feature.token_is_max_context.get(start, False) or end < start:
                        continue
                    if end - start + 1 <= MAX_ANSWER:
                        candidates.append((feature, start, end, start_logits[start], end_logits[end]))
        candidates.append(null)
        candidates.sort(key=lambda c: c[3] + c[4], reverse=True)
        seen, nbest = {}, []
        for feature, start, end, start_logit, end_logit in candidates:
            if len(nbest) >= N_BEST:
                break
            text = ""
            if start > 0:
                tok_text = " ".join(feature.tokens[start : end + 1]).replace(" ##", "").replace("##", "")
                tok_text = " ".join(tok_text.strip().split())
                orig = example.doc_tokens[feature.token_to_orig_map[start] : feature.token_to_orig_map[end] + 1]
                text = plain_final_text(tok_text, " ".join(orig))
                if text in seen:
                    continue
            seen[text] = True
            nbest.append((text, start_logit, end_logit))
        if "" not in seen:
            nbest.append(("", null[3], null[4]))
        scores = [start + end for _, start, end in nbest]
        exponentials = [math.exp(score - max(scores)) for score in scores]
        total = sum(exponentials)
        all_nbest[example.qas_id] = [
            {"text": text, "probability": e / total, "start_logit": start, "end_logit": end}
            for (text, start, end), e in zip(nbest, exponentials, strict=True)
        ]
        best = next(answer for answer in nbest if answer[0])
        null_odds[example.qas_id] = least - best[1] - best[2]
        predictions[example.qas_id] = "" if null_odds[example.qas_id] > 0 else best[0]
    for path, content in zip(paths, (predictions, all_nbest, null_odds), strict=True):
        with open(path, "w") as file:
            file.write(json.dumps(content, indent=4) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        examples, features, results = make_questions(arguments.windows, folder)
        ours = [os.path.join(folder, f"ours{i}") for i in range(3)]
        plain = [os.path.join(folder, f"plain{i}") for i in range(3)]
        times = {"plain": [], "tf_bert": []}
        for _ in range(arguments.rounds):
            began = time.process_time()
            plain_predictions(examples, features, results, plain)
            times["plain"].append(time.process_time() - began)
            began = time.process_time()
            write_predictions(
                examples, features, results, N_BEST, MAX_ANSWER, True, *ours, version_2_with_negative=True
            )
            times["tf_bert"].append(time.process_time() - began)
        equal = all(filecmp.cmp(a, b, shallow=False) for a, b in zip(ours, plain, strict=True))
    print(f"{len(features):,} windows of {len(examples):,} questions, n_best_size {N_BEST}; files equal: {equal}")
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name:8} {seconds:7.2f} CPU s   {medians['plain'] / seconds:5.1f} x")


if __name__ == "__main__":
    main()
