"""The original's way to make pre-training data, written down straightforwardly: the yardstick of `data_creation.py`.

Strings throughout, Python's own `random`, all instances in a list, one ``tf.train.Example`` a record.

Run: python benchmarks/plain_data_creation.py TEXT VOCAB OUTPUT DUPE_FACTOR
Prints the number of records and the CPU seconds from the reading of the text on.
"""

import collections
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))

import plain_tokenizer
import tensorflow as tf

LENGTH, PREDICTIONS, PROB, SHORT = 128, 20, 0.15, 0.1

Instance = collections.namedtuple("Instance", "tokens segment_ids is_random_next positions labels")


def create_instances(documents, index, words, rng):
    document, longest, instances = documents[index], LENGTH - 3, []
    target = rng.randint(2, longest) if rng.random() < SHORT else longest
    chunk, length, i = [], 0, 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            tokens_a, tokens_b = [], []
            for j in range(a_end):
                tokens_a.extend(chunk[j])
            is_random_next = False
            if len(chunk) == 1 or rng.random() < 0.5:
                is_random_next = True
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != index:
                        break
                start = rng.randint(0, len(documents[other]) - 1)
                for j in range(start, len(documents[other])):
                    tokens_b.extend(documents[other][j])
                    if len(tokens_b) >= target - len(tokens_a):
                        break
                i -= len(chunk) - a_end
            else:
                for j in range(a_end, len(chunk)):
                    tokens_b.extend(chunk[j])
            while len(tokens_a) + len(tokens_b) > longest:
                longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
                if rng.random() < 0.5:
                    del longer[0]
                else:
                    longer.pop()
            tokens = ["[CLS]"] + tokens_a + ["[SEP]"] + tokens_b + ["[SEP]"]
            segment_ids = [0] * (len(tokens_a) + 2) + [1] * (len(tokens_b) + 1)
            instances.append(Instance(*mask(tokens, segment_ids, is_random_next, words, rng)))
            chunk, length = [], 0
        i += 1
    return instances


def mask(tokens, segment_ids, is_random_next, words, rng):
    candidates = [[i] for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(candidates)
    count = min(PREDICTIONS, max(1, int(round(len(tokens) * PROB))))
    output, predictions = list(tokens), []
    for candidate in candidates:
        if len(predictions) >= count:
            break
        for i in candidate:
            if rng.random() < 0.8:
                output[i] = "[MASK]"
            elif rng.random() >= 0.5:
                output[i] = words[rng.randint(0, len(words) - 1)]
            predictions.append((i, tokens[i]))
    predictions.sort(key=lambda pair: pair[0])
    return output, segment_ids, is_random_next, [i for i, _ in predictions], [label for _, label in predictions]


def write(instances, vocab, path):
    with tf.io.TFRecordWriter(path) as writer:
        for instance in instances:
            ids = [vocab[token] for token in instance.tokens]
            real, padding = [1] * len(ids), [0] * (LENGTH - len(ids))
            labels = [vocab[label] for label in instance.labels]
            missing = PREDICTIONS - len(labels)
            features = collections.OrderedDict()
            features["input_ids"] = int64s(ids + padding)
            features["input_mask"] = int64s(real + padding)
            features["segment_ids"] = int64s(instance.segment_ids + padding)
            features["masked_lm_positions"] = int64s(instance.positions + [0] * missing)
            features["masked_lm_ids"] = int64s(labels + [0] * missing)
            weights = tf.train.FloatList(value=[1.0] * len(labels) + [0.0] * missing)
            features["masked_lm_weights"] = tf.train.Feature(float_list=weights)
            features["next_sentence_labels"] = int64s([int(instance.is_random_next)])
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def int64s(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))


def main(text, vocab_file, output, dupe_factor):
    with open(vocab_file, encoding="utf-8") as file:
        vocab = {line.strip(): number for number, line in enumerate(file)}
    start = time.process_time()
    rng, documents = random.Random(12345), [[]]
    with open(text, encoding="utf-8", newline="\n") as file:
        for line in file:
            line = line.strip()
            if not line:
                documents.append([])
            elif tokens := plain_tokenizer.tokenize(line, vocab):
                documents[-1].append(tokens)
    documents = [document for document in documents if document]
    rng.shuffle(documents)
    instances, words = [], list(vocab)
    for _ in range(int(dupe_factor)):
        for index in range(len(documents)):
            instances.extend(create_instances(documents, index, words, rng))
    rng.shuffle(instances)
    write(instances, vocab, output)
    print(len(instances), time.process_time() - start)


if __name__ == "__main__":
    main(*sys.argv[1:])
