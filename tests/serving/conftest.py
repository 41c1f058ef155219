"""Tiny models in folders, and servers of them."""

import contextlib
import threading
import time

import keras
import pytest
import uvicorn

from tf_bert.configs import BertConfig
from tf_bert.data.finetuning.label_list import note_labels
from tf_bert.models.bert import Bert
from tf_bert.models.bert_masked_lm import BertForMaskedLM
from tf_bert.models.bert_tasks import BertClassifier, BertQuestionAnswering, BertTokenClassifier
from tf_bert.serving.app import Limits, create_app
from tf_bert.serving.models import Registry
from tf_bert.serving.server import Server
from tf_bert.tokenization import FullTokenizer, save_vocab

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the a fine film is bad ada sings in paris who where ? . ##s 今 天 好".split()
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
CONFIG = BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, initializer_range=0.5, **SIZES)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Task -> the folder of a tiny model."""
    keras.utils.set_random_seed(3)
    root = tmp_path_factory.mktemp("served")
    save_vocab(WORDS, root / "vocab.txt")
    tokenizer = FullTokenizer(root / "vocab.txt")
    models = {
        "film": (BertClassifier(CONFIG, num_labels=2), "single", ["bad", "good"]),
        "names": (BertTokenClassifier(CONFIG, num_labels=3), "tags", ["O", "B-PER", "B-LOC"]),
        "questions": (BertQuestionAnswering(CONFIG), "squad", []),
        "vectors": (Bert(CONFIG), None, []),
        "masks": (BertForMaskedLM(CONFIG), None, []),
    }
    for name, (model, kind, labels) in models.items():
        model.save_checkpoint(root / name, "google", tokenizer)
        if kind:
            note_labels(root / name, kind, labels, max_seq_length=32)
    return {name: str(root / name) for name in models}


@contextlib.contextmanager
def serving(registry, limits=None, **options):
    """A server in a thread; its address."""
    config = uvicorn.Config(create_app(registry, limits or Limits(), **options), port=0, log_level="warning")
    socket = config.bind_socket()
    server = Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="session")
def registry(folders):  # it ends with its server
    return Registry(list(folders.values()))


@pytest.fixture(scope="session")
def address(registry):
    with serving(registry) as address:
        yield address
