"""Serving: one sentence of 12 words from string to label, against the bare forward pass at its true length.

The forward pass is the same graph function on ids that are there already, without padding. Both in turn in one process,
medians; each column gives wall and CPU time.

Run: python benchmarks/export.py [--layers=12] [--hidden=768] [--rounds=30]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as "import tf_bert" does where it comes before TensorFlow
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401

from tf_bert import BertClassifier, BertConfig
from tf_bert.export.saved_model import export_saved_model
from tf_bert.tokenization import save_vocab

SENTENCE = "the keeper winds the clock at dusk and the lamp turns again"


def measure(function) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    config = BertConfig(
        30522,
        hidden_size=options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        intermediate_size=4 * options.hidden,
        type_vocab_size=2,
    )
    model = BertClassifier(config, num_labels=2)
    with tempfile.TemporaryDirectory() as folder:
        words = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SENTENCE.split()])
        filler = [f"word{i}" for i in range(30522 - len(words))]
        save_vocab([*words, *filler], os.path.join(folder, "vocab.txt"))
        model.attach_preprocessor(os.path.join(folder, "vocab.txt"), max_seq_length=128)
        export_saved_model(model, os.path.join(folder, "served"), ["no", "yes"])
        loaded = tf.saved_model.load(os.path.join(folder, "served"))
    served, texts = loaded.signatures["serving_default"], tf.constant([SENTENCE])
    ids = {name: tf.constant(value) for name, value in model.preprocess([SENTENCE]).items()}
    signature = [{name: tf.TensorSpec([None, None], tf.int32) for name in ids}]
    forward = tf.function(lambda inputs: model(inputs, training=False)["logits"], signature)

    probabilities = served(texts=texts)["probabilities"]
    difference = np.abs(probabilities - tf.nn.softmax(forward(ids))).max()
    served(texts=texts)  # the first calls settle memory
    forward(ids)
    pairs = [(measure(lambda: served(texts=texts)), measure(lambda: forward(ids))) for _ in range(options.rounds)]
    print(
        f"{options.layers} layers of {options.hidden}, one sentence of {len(SENTENCE.split())} words, "
        f"{ids['input_ids'].shape[1]} pieces; {options.rounds} rounds, difference {difference:.1e}"
    )
    for kind, name in enumerate(("wall", "CPU")):
        ours, bare = (statistics.median(pair[side][kind] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(pair[0][kind] / pair[1][kind] for pair in pairs)
        print(f"{name:5} served {1000 * ours:8.2f} ms   forward {1000 * bare:8.2f} ms   ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
