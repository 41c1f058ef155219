"""The encoder's forward pass against keras-hub's, BERT-Base, batch 8, length 128, in the graph and compiled by XLA.

The rounds alternate between the two, so that a loaded machine disturbs both alike. Reported are medians of wall and
CPU seconds, and how far the outputs lie apart for the same weights.

Run, in an environment that has tf_bert's requirements and keras-hub:
    python benchmarks/bert_forward.py [--rounds=7] [--layers=12]
"""

import argparse
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as "import tf_bert" does where it comes before TensorFlow
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import keras_hub
import numpy as np
import tensorflow as tf

from tf_bert import Bert, BertConfig

BATCH, LENGTH = 8, 128


PEER_NAMES = {  # our scope in the whole model or in a block -> keras-hub's
    "embeddings/word_embeddings": "token_embedding/embeddings",
    "embeddings/position_embeddings": "position_embedding/embeddings",
    "embeddings/token_type_embeddings": "segment_embedding/embeddings",
    "embeddings/LayerNorm": "embeddings_layer_norm",
    "encoder/layer_": "transformer_layer_",
    "attention/self": "self_attention_layer",
    "attention/output/dense": "self_attention_layer/attention_output",
    "attention/output/LayerNorm": "self_attention_layer_norm",
    "intermediate/dense": "feedforward_intermediate_dense",
    "output/dense": "feedforward_output_dense",
    "output/LayerNorm": "feedforward_layer_norm",
    "pooler/dense": "pooled_dense",
}


def same_weights(bert: Bert, peer) -> None:
    """Copies our weights into keras-hub's backbone."""
    theirs = {variable.path: variable for variable in peer.weights}
    for variable in bert.weights:
        path = variable.path.removeprefix("bert/")
        for ours, name in PEER_NAMES.items():
            path = path.replace(ours, name)
        theirs[path].assign(variable.numpy().reshape(theirs[path].shape))


def measure(call) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()

    config = BertConfig(30522, num_hidden_layers=options.layers, type_vocab_size=2)
    bert = Bert(config)
    peer = keras_hub.models.BertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
    )
    same_weights(bert, peer)

    ids = np.random.default_rng(0).integers(5, config.vocab_size, (BATCH, LENGTH)).astype("int32")
    mask = (np.arange(LENGTH) < np.linspace(LENGTH // 2, LENGTH, BATCH)[:, None]).astype("int32")
    segments = np.zeros_like(ids)
    ids, mask, segments = (tf.constant(x) for x in (ids, mask, segments))
    ours = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    theirs = {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}

    print(f"BERT, {options.layers} layers, batch {BATCH}, length {LENGTH}, {options.rounds} rounds")
    print(f"{'':8}{'tf_bert wall':>14}{'cpu':>8}{'keras-hub wall':>16}{'cpu':>8}{'wall ratio':>12}{'cpu ratio':>11}")
    for name, jit_compile in (("graph", False), ("XLA", True)):
        a = tf.function(lambda x: bert(x)["sequence_output"], jit_compile=jit_compile)
        b = tf.function(lambda x: peer(x)["sequence_output"], jit_compile=jit_compile)
        difference = np.abs((a(ours) - b(theirs)).numpy()[mask.numpy() == 1]).max()
        pairs = [(measure(lambda: a(ours)), measure(lambda: b(theirs))) for _ in range(options.rounds)]  # noqa: B023
        (wall_a, cpu_a), (wall_b, cpu_b) = (
            [statistics.median(pair[side][kind] for pair in pairs) for kind in (0, 1)] for side in (0, 1)
        )
        print(
            f"{name:8}{wall_a:14.3f}{cpu_a:8.3f}{wall_b:16.3f}{cpu_b:8.3f}{wall_a / wall_b:12.3f}{cpu_a / cpu_b:11.3f}"
            f"   difference {difference:.1e}"
        )


if __name__ == "__main__":
    main()
