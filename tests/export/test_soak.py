"""Ten thousand requests of random texts from sixteen threads: each gets the model's own answer, and memory stays."""

import concurrent.futures
import os
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_raw_text import CONFIG, WORDS
from tf_bert import BertClassifier, BertEncoder, BertTokenClassifier
from tf_bert.configs import GPTConfig
from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.language_model import generate_text
from tf_bert.export.generation_saved_model import export
from tf_bert.export.saved_model import export_saved_model
from tf_bert.models.bert_tasks import BertQuestionAnswering
from tf_bert.models.gpt import GPT
from tf_bert.tokenization import save_vocab
from tf_bert.tokenization.byte_pair import GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs

pytest.importorskip("tensorflow_text")

REQUESTS, THREADS, TEXTS = 10_000, 16, 600
WARM = 2_000  # requests after which memory may no longer grow
MAX_GROWTH = 32 << 20  # bytes
ODD = ["", " ", "\t\n", "\x00", "\u200b", "\u3000", "[SEP]", "e\u0301" * 9, "\U0001f600", "a" * 300, "film " * 99]


def random_texts() -> list[str]:
    """Words of the vocabulary, others, and characters of all kinds; some of them are no text to speak of."""
    rnd = random.Random(1)
    words = [*WORDS[5:], "unknown", "Größe", "世界", "naïve", "\u200b", "..."]
    texts = [" ".join(rnd.choices(words, k=rnd.randrange(30))) for _ in range(TEXTS - 100)]
    texts += [
        "".join(chr(rnd.choice([rnd.randrange(1, 256), rnd.randrange(0x2500)])) for _ in range(20)) for _ in range(80)
    ]
    return texts + rnd.choices(ODD, k=20)


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """For each kind: what to call with numbers of texts, and the answers in process of all texts."""
    folder, texts = tmp_path_factory.mktemp("soak"), random_texts()
    others = texts[::-1]
    save_vocab(WORDS, folder / "vocab.txt")
    keras.utils.set_random_seed(1)
    made = {
        "classifier": BertClassifier(CONFIG, num_labels=3),
        "tags": BertTokenClassifier(CONFIG, num_labels=3),
        "questions": BertQuestionAnswering(CONFIG),
        "vectors": BertEncoder(CONFIG, pooling="mean"),
    }
    signatures = {}
    for name, model in made.items():
        model.attach_preprocessor(folder / "vocab.txt", truncation=model.truncation)
        signatures[name] = tf.saved_model.load(export_saved_model(model, folder / name)).signatures
    spans = made["questions"].answer(texts, others)
    pairs = tf.nn.softmax(made["classifier"].predict((texts, others))["logits"])
    expected = {
        ("classifier", "serving_default"): tf.nn.softmax(made["classifier"].predict(texts)["logits"]),
        ("classifier", "pairs"): pairs,
        ("tags", "serving_default"): tf.reduce_max(tf.nn.softmax(made["tags"].predict(texts)["logits"]), axis=-1),
        ("questions", "serving_default"): np.array([[span.start, span.end, span.no_answer] for span in spans]),
        ("vectors", "serving_default"): made["vectors"].predict(texts)["vectors"],
    }
    outputs = {"classifier": "probabilities", "tags": "probability", "vectors": "vectors"}

    def caller(name, key):
        signature = signatures[name][key]

        def call(rows):
            first, second = (tf.constant([of[row] for row in rows], tf.string, [len(rows)]) for of in (texts, others))
            if name == "questions":
                found = signature(questions=first, documents=second)
                return np.stack([found[part].numpy() for part in ("start", "end", "no_answer")], axis=1)
            found = signature(texts=first, text_pairs=second) if key == "pairs" else signature(texts=first)
            value = found[outputs[name]].numpy()
            return np.where(found["starts"] >= 0, value, np.nan) if name == "tags" else value

        return call

    callers = {service: caller(*service) for service in expected}
    return callers, {key: np.asarray(values) for key, values in expected.items()}


def soak(request) -> list[int]:
    """Makes all requests; the memory in use after each tenth of them."""
    memory = []
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, REQUESTS, REQUESTS // 10):
            for _ in pool.map(request, range(first, first + REQUESTS // 10)):
                pass  # raises what a request raised
            memory.append(resident_bytes())
    print("MB after each tenth:", [size >> 20 for size in memory])
    assert memory[-1] - memory[WARM * 10 // REQUESTS - 1] < MAX_GROWTH
    return memory


@pytest.mark.slow
def test_each_request_gets_the_models_answer(services):
    callers, expected = services
    names = list(callers)

    def request(number: int) -> None:
        rnd = random.Random(number)
        name = rnd.choice(names)
        rows = [rnd.randrange(TEXTS) for _ in range(rnd.choice([0, 1, 1, 1, 2, 5, 8]))]
        found, right = callers[name](rows), expected[name][rows]
        if name[0] == "tags":
            right = right[:, : found.shape[1]]
            found = np.where(np.isnan(found), right, found)  # padding and special tokens have no tag
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)

    soak(request)


@pytest.mark.slow
def test_each_request_is_continued_as_in_process(tmp_path):
    """A GPT, with a stop text."""
    texts = ["low", "lower", "", "lowest of all", "\u00e9", "l\x00w", "low " * 40]
    train_byte_pairs(["low lower lowest of all"] * 3, 275).save(tmp_path)
    tokenizer = GPT2Tokenizer(tmp_path)
    keras.utils.set_random_seed(1)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = GPT(GPTConfig(275, **sizes, max_position_embeddings=40, end_id=tokenizer.end_of_text_id))
    for variable in model.weights:
        variable.assign(variable + 0.7 * keras.random.normal(variable.shape, seed=1))
    free = generate_text(model, texts[:1], tokenizer, max_length=10)[0]
    constraints = Constraints(stop_texts=[free[3:5]])
    served = tf.saved_model.load(export(model, tokenizer, tmp_path / "gpt", max_length=10, constraints=constraints))
    prompts = [tokenizer.decode(tokenizer.tokenize_to_ids(text)[-30:]) for text in texts]
    expected = generate_text(model, prompts, tokenizer, max_length=10, constraints=constraints)

    def request(number: int) -> None:
        rnd = random.Random(number)
        rows = [rnd.randrange(len(texts)) for _ in range(rnd.randrange(4))]
        found = served(tf.constant([texts[row] for row in rows], tf.string, [len(rows)]))["texts"].numpy()
        assert [text.decode(errors="replace") for text in found[:, 0]] == [expected[row] for row in rows]

    soak(request)
