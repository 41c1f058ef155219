"""Seq2Seq and the Transformer: against numpy in float64, trained, saved, decoded."""

import dataclasses
import functools
import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.support.formulas import softmax
from tf_bert.configs import Seq2SeqConfig, TransformerConfig
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.sampling import Greedy, Sampling
from tf_bert.decoding.translation import generate, translate_batches
from tf_bert.layers.positions import sinusoidal_positions
from tf_bert.layers.scheduled_sampling import teacher_forcing_probability
from tf_bert.models.seq2seq import Seq2Seq
from tf_bert.models.transformer import Transformer
from tf_bert.models.translation import smoothed_cross_entropy
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.sentence_piece import SentencePieceTokenizer, train_sentence_piece
from tf_bert.trainer.schedules import NoamSchedule

PAD, UNKNOWN, START, END = range(4)
SOURCE = np.array([[5, 6, 7, 8, 3], [5, 4, 3, 0, 0], [9, 3, 0, 0, 0], [0, 0, 0, 0, 0]], "int32")
TARGET = np.array([[8, 7, 6, 3], [4, 3, 0, 0], [9, 3, 0, 0], [5, 5, 5, 3]], "int32")
INPUTS = {"source_ids": SOURCE, "target_ids": TARGET}


def transformer(dtype="float64", vocab_size=11, spread=4.0, **settings):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    settings = {"max_position_embeddings": 24, **sizes, **settings}
    return spread_out(Transformer(TransformerConfig(vocab_size, **settings), dtype=dtype), spread)


def seq2seq(dtype="float64", vocab_size=11, spread=4.0, **settings):
    settings = {"embedding_size": 6, "hidden_size": 8, "num_hidden_layers": 2, **settings}
    return spread_out(Seq2Seq(Seq2SeqConfig(vocab_size, **settings), dtype=dtype), spread)


def spread_out(model, factor):
    """Every variable away from its start, and outputs that differ clearly from source to source."""
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        scale = 0.1 if variable.path.endswith(("gamma", "beta", "bias")) else factor / variable.shape[-1] ** 0.5 / 2
        start = 1.0 if variable.path.endswith("gamma") else 0.0
        variable.assign(start + scale * rng.normal(size=variable.shape))
    return model


MODELS = {
    "transformer": lambda **kwargs: transformer(**kwargs),
    "transformer_pre_norm": lambda **kwargs: transformer(pre_norm=True, position_embedding="learned", **kwargs),
    "bahdanau": lambda **kwargs: seq2seq(cell="gru", maxout=True, **kwargs),
    "luong": lambda **kwargs: seq2seq(decoder="luong", attention={"score": "general"}, residual=True, **kwargs),
    "local": lambda **kwargs: seq2seq(
        decoder="luong",
        attention={"score": "dot", "alignment": "monotonic", "window": 2},
        bidirectional=False,
        **kwargs,
    ),
    "plain": lambda **kwargs: seq2seq(decoder="plain", bidirectional=False, reverse_source=True, **kwargs),
    "context": lambda **kwargs: seq2seq(decoder="context", cell="rnn", **kwargs),
}
each_model = pytest.mark.parametrize("name", MODELS)


@functools.cache
def made(name):
    """A model that no test changes: to make one takes longer than to use it."""
    return MODELS[name]()


# The Transformer, written down once more.


class TransformerByHand:
    """One example without padding; weights by the names they are saved under."""

    def __init__(self, model):
        self.config = model.config
        self.w = {v.path.partition("/")[2]: np.asarray(v) for v in model.trainable_variables}

    def dense(self, name, x):
        return x @ self.w[f"{name}/kernel"] + self.w[f"{name}/bias"]

    def norm(self, name, x):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * self.w[f"{name}/gamma"] + self.w[f"{name}/beta"]

    def attention(self, name, kind, x, memory, causal):
        q, k, v = (self.dense(f"{name}/{kind}/{p}", y) for p, y in (("query", x), ("key", memory), ("value", memory)))
        heads, width = [], self.config.hidden_size // self.config.num_attention_heads
        for n in range(self.config.num_attention_heads):
            part = slice(n * width, (n + 1) * width)
            scores = q[:, part] @ k[:, part].T / math.sqrt(width)
            if causal:
                scores = np.where(np.tri(len(x), len(memory)) > 0, scores, -np.inf)
            heads.append(softmax(scores) @ v[:, part])
        return self.dense(f"{name}/output/dense", np.concatenate(heads, -1))

    def feed_forward(self, name, x):
        return self.dense(f"{name}/output/dense", np.maximum(self.dense(f"{name}/intermediate/dense", x), 0))

    def embed(self, ids):
        size = self.config.hidden_size
        table = np.zeros((len(ids), size))
        for p, i in itertools.product(range(len(ids)), range(size)):
            angle = p / 10000 ** (2 * (i // 2) / size)
            table[p, i] = math.cos(angle) if i % 2 else math.sin(angle)
        if self.config.position_embedding == "learned":
            table = self.w["target_ids/position_embeddings"][: len(ids)]
        return self.w["target_ids/word_embeddings"][ids] * math.sqrt(size) + table

    def stack(self, side, x, memory=None):
        for i in range(self.config.num_hidden_layers):
            block = f"{side}/layer_{i}"
            sublayers = [
                (
                    f"{block}/attention/output",
                    lambda y, b=block: self.attention(f"{b}/attention", "self", y, y, side == "decoder"),
                )
            ]
            if side == "decoder":
                name = f"{block}/cross_attention"
                sublayers.append((f"{name}/output", lambda y, n=name: self.attention(n, "cross", y, memory, False)))
            sublayers.append((f"{block}/output", lambda y, b=block: self.feed_forward(b, y)))
            for norm, function in sublayers:
                if self.config.pre_norm:
                    x = x + function(self.norm(f"{norm}/LayerNorm", x))
                else:
                    x = self.norm(f"{norm}/LayerNorm", x + function(x))
        return self.norm(f"{side}_norm", x) if self.config.pre_norm else x

    def logits(self, source, target):
        memory = self.stack("encoder", self.embed(source))
        return self.stack("decoder", self.embed([START, *target[:-1]]), memory) @ self.w["target_ids/word_embeddings"].T


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("position_embedding", ["sinusoidal", "learned"])
def test_transformer_is_the_papers_formula(pre_norm, position_embedding):
    model = transformer(pre_norm=pre_norm, position_embedding=position_embedding)
    logits, by_hand = np.asarray(model(INPUTS)["logits"]), TransformerByHand(model)
    for b in range(3):
        source, target = SOURCE[b][SOURCE[b] > 0], TARGET[b][TARGET[b] > 0]
        np.testing.assert_allclose(logits[b, : len(target)], by_hand.logits(source, target), atol=1e-10)


@pytest.mark.parametrize(("make", "published"), [(TransformerConfig.base, 65e6), (TransformerConfig.big, 213e6)])
def test_published_sizes(make, published):
    """By the formula; the paper's figures are rounded, and its table does not say with which vocabulary."""
    config = make(37000)
    size, inner = config.hidden_size, config.intermediate_size
    attention, feed_forward, norm = 4 * (size * size + size), 2 * size * inner + inner + size, 2 * size
    count = config.num_hidden_layers * (3 * attention + 2 * feed_forward + 5 * norm) + 37000 * size
    assert count == pytest.approx(published, rel=0.03)
    assert f"{count:,}" in make.__doc__
    small = make(40, hidden_size=16, intermediate_size=24, num_attention_heads=2)
    size, inner = 16, 24
    attention, feed_forward, norm = 4 * (size * size + size), 2 * size * inner + inner + size, 2 * size
    assert Transformer(small).count_params() == 6 * (3 * attention + 2 * feed_forward + 5 * norm) + 40 * size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "count"), [(TransformerConfig.base, 63_082_496), (TransformerConfig.big, 214_245_376)]
)
def test_published_configurations_build(make, count):
    assert Transformer(make(37000)).count_params() == count


def test_one_table_or_three():
    shared = transformer()
    assert sum("word_embeddings" in v.path for v in shared.trainable_variables) == 1
    own = transformer(source_vocab_size=20, tie_output=False)
    tables = {v.path.partition("/")[2]: v.shape for v in own.trainable_variables if "word_emb" in v.path}
    assert tables == {"target_ids/word_embeddings": (11, 8), "source_ids/word_embeddings": (20, 8)}
    assert own.output_layer.kernel.shape == (8, 11)
    own(INPUTS | {"source_ids": SOURCE + 10})
    tied = seq2seq(embedding_size=8, tie_output=True)
    assert tied.output_layer is None and tied(INPUTS)["logits"].shape == (4, 4, 11)


def test_sinusoidal_positions():
    table = np.asarray(sinusoidal_positions(np.arange(50), 6, "float64"))
    assert table[7, 2] == pytest.approx(math.sin(7 / 10000 ** (2 / 6)), abs=1e-12)
    assert table[7, 5] == pytest.approx(math.cos(7 / 10000 ** (4 / 6)), abs=1e-12)


# What both models promise.


@each_model
def test_padding_does_not_count(name):
    model = made(name)
    logits = np.asarray(model(INPUTS)["logits"])
    assert np.all(np.isfinite(logits))
    wide = {"source_ids": np.pad(SOURCE, ((0, 0), (0, 3))), "target_ids": np.pad(TARGET, ((0, 0), (0, 2)))}
    np.testing.assert_allclose(model(wide)["logits"][:, :4], logits, atol=1e-10)
    alone = model({"source_ids": SOURCE[1:2, :3], "target_ids": TARGET[1:2, :2]})["logits"]
    np.testing.assert_allclose(alone[0], logits[1, :2], atol=1e-10)
    # A mask that is given counts, whatever the ids.
    given = {"source_ids": np.where(SOURCE, SOURCE, 9), "source_mask": SOURCE > 0, "target_ids": TARGET}
    np.testing.assert_allclose(model(given)["logits"], logits, atol=1e-10)


@each_model
def test_a_word_does_not_see_itself_or_what_follows(name):
    model = made(name)
    changed = TARGET.copy()
    changed[:, 2:] = 10
    before, after = (np.asarray(model(INPUTS | {"target_ids": ids})["logits"]) for ids in (TARGET, changed))
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-12)
    assert np.abs(before[:, 3] - after[:, 3]).max() > 1e-3


@pytest.fixture
def eagerly():
    """Step by step, without compiling; the graph does the same (test_full_beam_finds_the_best_of_all_targets)."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


SEARCHES = [Greedy(), BeamSearch(3, 0.6, 0.2, n_best=2), Sampling(top_k=5, num_samples=2)]


@each_model
def test_what_is_returned_has_the_log_probability_that_teacher_forcing_gives(name, eagerly):
    """Also: the cache gives what the whole prefix gives, and a batch what each source gives alone."""
    model = made(name)
    options = {"max_length": 4, "constraints": Constraints(min_length=3)}
    beam = SEARCHES[1] if model.has_attention else dataclasses.replace(SEARCHES[1], coverage_penalty=0.0)
    for search in SEARCHES if name in ("transformer", "luong") else [beam]:
        result = model.generate(SOURCE, search=search, seeds=[1, 2, 3, 4], **options)
        best = result["tokens"].shape[1]
        for rank in range(best):
            tokens, lengths = result["tokens"][:, rank], result["lengths"][:, rank]
            inputs = {"source_ids": SOURCE, "target_ids": tokens}
            inputs["target_mask"] = np.arange(tokens.shape[1]) < lengths[:, None]
            np.testing.assert_allclose(result["log_probs"][:, rank], model.log_probs(inputs), atol=1e-10)
        for i in (2,):  # the shorter one, without its padding
            alone = model.generate(SOURCE[i : i + 1, : 5 - i], search=search, seeds=[1 + i], **options)
            length = alone["tokens"].shape[2]
            np.testing.assert_array_equal(result["tokens"][i, :, :length], alone["tokens"][0])
            np.testing.assert_array_equal(result["lengths"][i], alone["lengths"][0])
            np.testing.assert_array_equal(result["alignments"][i, :, :length], alone["alignments"][0])
            np.testing.assert_allclose(result["log_probs"][i], alone["log_probs"][0], atol=1e-10)
    assert np.ptp(result["log_probs"][:3, 0]) > 1e-3  # the source counts


@pytest.mark.parametrize("name", ["transformer", "luong"])
def test_full_beam_finds_the_best_of_all_targets(name):
    model = MODELS[name](vocab_size=6, num_hidden_layers=1)  # two layers: step by step, above
    source = np.array([[4, 5, 3], [5, 3, 0]], "int32")
    result = model.generate(
        source, search=BeamSearch(27, n_best=3), max_length=3, constraints=Constraints(banned_ids=(1,))
    )
    targets = [[*words, END] for n in range(3) for words in itertools.product([4, 5], repeat=n)]
    targets += [list(words) for words in itertools.product([4, 5], repeat=3)]
    padded = np.array([target + [PAD] * (3 - len(target)) for target in targets], "int32")
    for i in range(2):
        inputs = {"source_ids": np.repeat(source[i : i + 1], len(targets), axis=0), "target_ids": padded}
        log_probs = np.asarray(model.log_probs(inputs))
        order = np.argsort(-log_probs)[:3]
        np.testing.assert_array_equal(result["tokens"][i], padded[order])
        np.testing.assert_allclose(result["scores"][i], log_probs[order], atol=1e-10)


@pytest.mark.parametrize("name", ["transformer_pre_norm", "bahdanau", "local"])
def test_float32_and_half_precision(name, eagerly):
    exact, single = made(name), MODELS[name](dtype="float32")
    np.testing.assert_allclose(exact(INPUTS)["logits"], single(INPUTS)["logits"], rtol=1e-4, atol=1e-4)
    half = MODELS[name](dtype="mixed_float16", spread=1.0)
    outputs = half(INPUTS, training=True)
    assert keras.backend.standardize_dtype(outputs["logits"].dtype) == "float32"
    assert np.all(np.isfinite(outputs["logits"]))
    result = half.generate(SOURCE, search=BeamSearch(2), max_length=3)
    assert np.all(np.isfinite(result["log_probs"]))


@pytest.mark.parametrize("name", ["transformer", "transformer_pre_norm", "bahdanau", "local"])
def test_save_and_load(name, tmp_path):
    model = MODELS[name](dtype="float32", num_hidden_layers=1)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.config == model.config
    np.testing.assert_array_equal(model(INPUTS)["logits"], again(INPUTS)["logits"])
    if name == "transformer":
        model.generate(SOURCE, max_length=3)
        model.save(tmp_path / "after.keras")  # what was compiled does not get in the way


@pytest.mark.parametrize("name", ["transformer", pytest.param("luong", marks=pytest.mark.slow)])
def test_training_learns_to_reverse(name):
    rng = np.random.default_rng(0)
    words = rng.integers(4, 11, size=(64, 3))
    end = np.full((64, 1), END)
    inputs = {
        "source_ids": np.hstack([words, end]).astype("int32"),
        "target_ids": np.hstack([words[:, ::-1], end]).astype("int32"),
    }
    settings = {"hidden_dropout_prob": 0.0, "label_smoothing": 0.0}
    if name == "transformer":
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
        kind, config = Transformer, TransformerConfig(11, **sizes, **settings)
    else:
        sizes = {"hidden_size": 32, "embedding_size": 16, "decoder": "luong"}
        kind, config = Seq2Seq, Seq2SeqConfig(11, **sizes, **settings)
    keras.utils.set_random_seed(0)
    model = kind(config)
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    history = model.fit(inputs, batch_size=64, epochs=60, verbose=0)
    assert history.history["accuracy"][-1] > 0.9
    tf.config.run_functions_eagerly(True)  # compiling takes longer than five steps
    try:
        result = model.generate(inputs["source_ids"], max_length=5)
    finally:
        tf.config.run_functions_eagerly(False)
    assert np.mean(np.all(result["tokens"][:, 0, :4] == inputs["target_ids"], axis=1)) > 0.9


# Losses and schedules.


def test_label_smoothing_is_the_papers_formula():
    logits, labels = np.random.default_rng(0).normal(size=(2, 3, 5)), np.array([[1, 2, 3], [4, 0, 1]])
    target = 0.9 * np.eye(5)[labels] + 0.1 / 5
    expected = -(target * np.log(softmax(logits))).sum(-1)
    np.testing.assert_allclose(smoothed_cross_entropy(labels, logits, 0.1), expected, atol=1e-12)


def test_loss_counts_real_words_only():
    model = transformer(label_smoothing=0.0)
    outputs = model(INPUTS)
    values, weights = model.per_example_losses(INPUTS, outputs)["loss"], model.loss_weights(INPUTS)["loss"]
    np.testing.assert_array_equal(weights, TARGET > 0)
    np.testing.assert_allclose(-np.sum(values * weights, axis=1), model.log_probs(INPUTS), atol=1e-12)
    metrics = model.per_example_metrics(INPUTS, outputs)
    np.testing.assert_allclose(metrics["cross_entropy"][0], values, atol=1e-12)
    np.testing.assert_array_equal(metrics["accuracy"][0], np.argmax(outputs["logits"], -1) == TARGET)


def test_noam_schedule():
    schedule = NoamSchedule(512, 4000, factor=2.0)
    for step in (0, 10, 3999, 4000, 100000):
        expected = 2.0 * 512**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4000**-1.5)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-6)
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert again.get_config() == schedule.get_config()
    with pytest.raises(ValueError, match="num_warmup_steps"):
        NoamSchedule(512, 0)


def test_scheduled_sampling_schedules():
    def values(*args, steps=(0, 5, 100)):
        return [float(teacher_forcing_probability(args[0], step, *args[1:])) for step in steps]

    assert values("none", 0.3) == [1, 1, 1]
    np.testing.assert_allclose(values("constant", 0.3), [0.3] * 3)
    np.testing.assert_allclose(values("linear", 1.0, 0.1, 0.2), [1, 0.5, 0.2])
    np.testing.assert_allclose(values("exponential", 0.9), [1, 0.9**5, 0.9**100], rtol=1e-5)
    np.testing.assert_allclose(
        values("inverse_sigmoid", 5.0), [5 / 6, 5 / (5 + math.e), 5 / (5 + math.exp(20))], rtol=1e-5
    )
    assert values("inverse_sigmoid", 1.0, steps=(10**6,)) == [0]
    for args, message in (
        (("exponential", 2.0), "between 0 and 1"),
        (("inverse_sigmoid", 0.5), "at least 1"),
        (("quadratic", 1.0), "known are none"),
    ):
        with pytest.raises(ValueError, match=message):
            values(*args)


@pytest.mark.parametrize("name", ["transformer", "luong"])
def test_scheduled_sampling_with_probability_0_is_teacher_forcing_bit_for_bit(name):
    def logits(**settings):
        keras.utils.set_random_seed(3)
        model = MODELS[name](dtype="float32", hidden_dropout_prob=0.2, **settings)
        for generator in keras.tree.flatten([layer for layer in model._flatten_layers()]):
            if hasattr(generator, "seed_generator"):
                generator.seed_generator.state.assign([5, 7])
        return np.asarray(model(INPUTS, training=True)["logits"])

    forced = logits()
    np.testing.assert_array_equal(logits(scheduled_sampling="constant", scheduled_sampling_k=1.0), forced)
    own = logits(scheduled_sampling="constant", scheduled_sampling_k=0.0)
    np.testing.assert_array_equal(own[:, 0], forced[:, 0])  # the first word follows the start symbol in any case
    assert np.abs(own[:, 1:] - forced[:, 1:]).max() > 1e-3


@pytest.mark.parametrize("name", ["transformer", "luong"])
def test_scheduled_sampling_trains_and_follows_the_optimizer(name):
    model = MODELS[name](
        dtype="float32",
        num_hidden_layers=1,
        scheduled_sampling="linear",
        scheduled_sampling_k=1.0,
        scheduled_sampling_slope=0.25,
    )
    assert float(model.right_word_probability()) == 1.0
    model.compile(optimizer=keras.optimizers.SGD(0.001))
    model.fit(INPUTS, batch_size=4, epochs=3, verbose=0)
    assert float(model.right_word_probability()) == 0.25
    # In inference the words are those given.
    np.testing.assert_array_equal(model(INPUTS)["logits"], model(INPUTS, training=False)["logits"])


def test_scheduled_sampling_draws_what_the_model_says():
    """With a model that always says 7, its own words are all 7."""
    for make in (transformer, seq2seq):
        model = make(tie_output=False, scheduled_sampling="constant", scheduled_sampling_k=0.0, hidden_dropout_prob=0.0)
        model.output_layer.bias.assign(1000.0 * np.eye(11)[7])
        sevens = INPUTS | {"target_ids": np.full_like(TARGET, 7)}
        found = model(INPUTS, training=True)["logits"]
        np.testing.assert_allclose(found, model(sevens, training=False)["logits"], atol=1e-9)


# Options.


def test_reversed_source(eagerly):
    plain, reverse = seq2seq(bidirectional=False), seq2seq(bidirectional=False, reverse_source=True)
    backwards = SOURCE.copy()
    for row, length in zip(backwards, (SOURCE > 0).sum(1), strict=True):
        row[:length] = row[:length][::-1]
    found, expected = reverse(INPUTS), plain(INPUTS | {"source_ids": backwards})
    np.testing.assert_allclose(found["logits"], expected["logits"], atol=1e-12)
    weights = np.asarray(expected["attention_weights"])
    np.testing.assert_allclose(np.asarray(found["attention_weights"])[0], weights[0, :, ::-1], atol=1e-12)
    np.testing.assert_allclose(np.asarray(found["attention_weights"])[1, :, :3], weights[1, :, 2::-1], atol=1e-12)
    assert np.all(np.asarray(found["attention_weights"])[1, :, 3:] == 0)
    alignments = reverse.generate(SOURCE, max_length=3)["alignments"]
    other = plain.generate(backwards, max_length=3)["alignments"]
    np.testing.assert_array_equal(alignments[0], 4 - other[0])


def test_attention_probabilities_on_request(eagerly):
    model = made("transformer")
    outputs = model(INPUTS, return_attention_probs=True)
    assert [x.shape for x in outputs["encoder_attention_probs"]] == [(4, 2, 5, 5)] * 2
    assert [x.shape for x in outputs["decoder_attention_probs"]] == [(4, 2, 4, 4)] * 2
    cross = np.asarray(outputs["cross_attention_probs"])
    assert cross.shape == (2, 4, 2, 4, 5)
    np.testing.assert_allclose(cross[:, :3].sum(-1), 1.0)
    assert np.all(cross[:, 1, :, :, 3:] == 0) and np.all(cross[:, 3] == 0)
    alignments = model.generate(SOURCE[:1], prefix_ids=TARGET[:1], max_length=4)["alignments"]
    np.testing.assert_array_equal(alignments[0, 0], cross[0, 0].mean(0).argmax(-1))


def test_prefix_and_lengths(eagerly):
    model = made("transformer")
    result = model.generate(SOURCE, prefix_ids=[[8, 9], [], [7], [5, 5, 5]], max_length=[3, 2, 6, 4])
    assert list(result["tokens"][0, 0, :2]) == [8, 9] and result["tokens"][2, 0, 0] == 7
    assert np.all(result["lengths"][:, 0] <= [3, 2, 6, 4])
    result = model.generate([[5, 3], [5, 6, 7, 3]], constraints=Constraints(min_length=5), max_length=9)
    assert result["lengths"].min() >= 5
    free = model.generate([[5, 3]], constraints=Constraints(banned_ids=(END,)))
    assert free["lengths"][0, 0] == 14  # twice the source and ten


def test_several_models_average_their_probabilities(eagerly):
    one, other = made("transformer"), transformer(spread=2.0, num_hidden_layers=1)
    same = generate([one, one], SOURCE, search=BeamSearch(2), max_length=3)
    np.testing.assert_array_equal(same["tokens"], one.generate(SOURCE, search=BeamSearch(2), max_length=3)["tokens"])
    models = [one, made("bahdanau"), other]
    mixed = generate(models, SOURCE[:1], max_length=1)
    first = INPUTS | {"source_ids": SOURCE[:1], "target_ids": TARGET[:1, :1]}
    probs = np.mean([softmax(np.asarray(model(first)["logits"])[0, 0]) for model in models], axis=0)
    assert mixed["log_probs"][0, 0] == pytest.approx(np.log(probs[mixed["tokens"][0, 0, 0]]), abs=1e-10)


def test_compiled_graphs_are_kept():
    model = transformer(num_hidden_layers=1)
    for _ in range(2):
        model.generate(SOURCE, max_length=5, search=BeamSearch(2))
        model.generate(SOURCE[:, :3], max_length=6, search=BeamSearch(2), seeds=4)
    assert len(vars(model)["_decoding_graphs"]) == 1


@pytest.fixture
def tokenizer(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ein", "zug", "a", "train", "##s", "mat", "from"]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(words) + "\n")
    return FullTokenizer(path)


def test_translate_keeps_the_order_of_texts(tokenizer, eagerly):
    model, texts = made("transformer"), ["ein zug from mat", "", "zug", "mat mat"]
    options = {"max_length": 4, "constraints": Constraints(min_length=3, banned_ids=(UNKNOWN,))}
    together = model.translate(texts, tokenizer, batch_size=2, **options)
    assert together == [model.translate([text], tokenizer, **options)[0] for text in texts]
    assert together[1] == "" and len(set(together)) > 2
    ids = model.generate([[5, 3]], search=BeamSearch(4, 0.6), **options)["tokens"][0, 0]
    assert together[2] == tokenizer.decode([int(i) for i in ids if i != END])
    assert model.translate([], tokenizer) == []


def test_what_is_given_for_each_text_goes_with_it(tokenizer, eagerly):
    """However texts are sorted and cut into batches: each gets what it gets alone."""
    model, texts = made("transformer"), ["zug", "", "ein zug from mat", "mat mat"]
    each = {"max_length": [3, 1, 5, 4], "prefix_ids": [[6], [7], [9, 10], [5]], "seeds": [7, 7, 7, 8]}
    options = {"constraints": Constraints(banned_ids=(UNKNOWN, END)), "search": Sampling()}
    alone = [
        model.translate([text], tokenizer, **options, **{name: [values[i]] for name, values in each.items()})[0]
        for i, text in enumerate(texts)
    ]
    for batch_size in (2, 3, 32):
        assert model.translate(texts, tokenizer, batch_size=batch_size, **options, **each) == alone
    assert alone[0].startswith("a") and alone[2].startswith("mat from")
    counted = model.translate(["zug"] * 3, tokenizer, batch_size=1, seeds=3, max_length=6, **options)
    assert len(set(counted)) == 3  # text i has seed 3 + i
    assert counted == model.translate(["zug"] * 3, tokenizer, seeds=[3, 4, 5], max_length=6, **options)
    with pytest.raises(ValueError, match="2 values of prefix_ids for 4 texts"):
        model.translate(texts, tokenizer, prefix_ids=[[4], [5]])


def test_ids_are_those_of_training(tmp_path, eagerly):
    """Pieces are not looked up again: a run of unknown characters is one piece, which may read like a symbol's."""
    path = train_sentence_piece(["12 34 567 890"] * 9, tmp_path / "a.model", 20, "char")
    tokenizer = SentencePieceTokenizer(path)
    found = []
    for _, _, rows in translate_batches([made("transformer")], ["1</s>2"], tokenizer, Greedy(), 2, max_length=1):
        found += rows
    assert found == [[*tokenizer.tokenize_to_ids("1</s>2"), END]]


def test_copied_words_keep_their_blanks(tmp_path, eagerly):
    path = train_sentence_piece(["ein zug from mat"] * 9, tmp_path / "a.model", 8, "word")
    tokenizer = SentencePieceTokenizer(path)
    attention = {"score": "dot", "alignment": "monotonic", "window": 1, "gaussian": True}
    model = seq2seq(decoder="luong", attention=attention, bidirectional=False)
    model.output_layer.bias.assign(1000.0 * np.eye(11)[UNKNOWN])
    copied = model.translate(["ein Zorgxx from"], tokenizer, max_length=2, copy_unknown=True)
    assert len(copied[0].split()) == 2 and set(copied[0].split()) <= {"ein", "Zorgxx", "from"}


def test_a_source_of_the_greatest_length_fits_its_position_table(eagerly):
    model = seq2seq(attention={"score": "location", "max_source_length": 20})
    assert model.generate([[5] * 20], max_length=2)["tokens"].shape[0] == 1


@pytest.mark.parametrize("name", ["transformer", "luong"])
def test_a_batch_in_float32_is_its_sources_one_by_one(name):
    model = MODELS[name](dtype="float32")
    options = {"max_length": 6, "search": BeamSearch(3, 0.6)}
    together = model.generate(SOURCE, **options)
    for i, row in enumerate(SOURCE):
        alone = model.generate([row[row != 0]], **options)
        length = alone["lengths"][0, 0]
        assert together["lengths"][i, 0] == length
        np.testing.assert_array_equal(together["tokens"][i, 0, :length], alone["tokens"][0, 0, :length])
        np.testing.assert_allclose(together["log_probs"][i], alone["log_probs"][0], atol=1e-4)
    targets = together["tokens"][:, 0]
    forced = model.log_probs({"source_ids": SOURCE, "target_ids": targets})
    np.testing.assert_allclose(together["log_probs"][:, 0], forced, atol=1e-4)


def test_unknown_words_are_copied_from_where_the_model_looks(tokenizer, eagerly):
    attention = {"score": "dot", "alignment": "monotonic", "window": 1, "gaussian": True}
    model = seq2seq(decoder="luong", attention=attention, bidirectional=False)
    model.output_layer.bias.assign(1000.0 * np.eye(11)[UNKNOWN])
    text = "Ein Zorgxx from"
    plain = model.translate([text], tokenizer, max_length=3, search=Greedy())
    copied = model.translate([text], tokenizer, max_length=3, search=Greedy(), copy_unknown=True)
    alignments = model.generate([[4, 1, 10, 3]], max_length=3)["alignments"][0, 0]
    words = ["Ein", "Zorgxx", "from", "[UNK]"]
    assert plain != copied and copied == [" ".join(words[i] for i in alignments)]


def ready():
    return made("transformer")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ready().generate([[5, 11]]), "source_ids holds 11, but there are 11 source words"),
        (lambda: ready().generate([[5] * 25]), "a source has 25 words, but max_position_embeddings is 24"),
        (lambda: ready().generate([[5]], max_length=25), "max_length is 25, but the model has 24 positions"),
        (lambda: ready().generate([[5]], max_length=0), "max_length must be at least 1"),
        (lambda: ready().generate([[5]], prefix_ids=[[4, 5, 6]], max_length=2), "prefix 0 has 3 tokens"),
        (lambda: ready().generate([[5], [6]], prefix_ids=[[4]]), "1 prefixes for 2 sources"),
        (lambda: ready().generate([[5]], prefix_ids=[[99]]), "outside the 11 target words"),
        (lambda: ready().generate([[5, 6]], source_mask=[[1]]), r"shape \(1, 1\), source_ids \(1, 2\)"),
        (lambda: ready()(INPUTS | {"source_ids": SOURCE + 5}), "target_ids holds 1., but the table has 11 rows"),
        (lambda: ready()(INPUTS | {"source_ids": np.full((4, 25), 4)}), "25 positions, max_position_emb"),
        (
            lambda: seq2seq(attention={"score": "location", "max_source_length": 8}).generate([[5] * 9]),
            "a source has 9 words, but max_source_length of the attention is 8",
        ),
        (lambda: ready().generate([[5], [6]], search=Sampling(), seeds=[9]), "1 seeds for 2 sources"),
        (lambda: ready().generate([[5]], prefix_ids=[[0, 5]]), r"prefix 0 has padding \(0\) before a token: \[0, 5\]"),
        (lambda: ready().generate([[5]], max_length=3, constraints=Constraints(min_length=9)), "3, but min_length 9"),
        (lambda: ready().generate([[5]], constraints=Constraints(min_length=99)), "min_length is 99, but the"),
        (lambda: generate([ready(), transformer(vocab_size=12)], [[5]]), "need equal vocabularies"),
        (lambda: made("plain").generate([[5]], search=BeamSearch(2, coverage_penalty=1.0)), "coverage_penalty goes by"),
        (lambda: made("plain").translate(["a"], None, copy_unknown=True), "copy_unknown goes by where"),
        (lambda: Seq2SeqConfig(11, scheduled_sampling="quadratic"), "unknown scheduled_sampling 'quadratic'"),
        (lambda: Seq2SeqConfig(11, scheduled_sampling="linear"), "needs a scheduled_sampling_slope above 0"),
        (lambda: Seq2SeqConfig(11, scheduled_sampling="exponential"), "needs a scheduled_sampling_k between 0 and 1"),
        (lambda: TransformerConfig(11, end_id=0), "end would be taken for padding"),
        (lambda: TransformerConfig(3), "end_id 3 lies outside vocab_size 3"),
        (lambda: TransformerConfig(11, hidden_size=9), "not a multiple"),
        (lambda: TransformerConfig(11, position_embedding="rotary"), "'sinusoidal' or 'learned'"),
        (lambda: TransformerConfig(11, label_smoothing=1.0), "label_smoothing"),
        (lambda: Seq2SeqConfig(11, tie_output=True), "tie_output needs embedding_size 256"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_constraints_may_be_lists():
    lists = Constraints(banned_ids=[np.int64(5)], stop_sequences=[[6, 7]])
    assert lists == Constraints(banned_ids=(5,), stop_sequences=((6, 7),)) and len({lists}) == 1
    assert ready().generate([[5]], max_length=2, constraints=lists)["tokens"].shape[0] == 1


def test_no_sources(eagerly):
    assert ready().generate(np.zeros((0, 0), "int32"), max_length=3)["tokens"].shape[0] == 0
    assert ops.shape(ready().generate([[]], max_length=3)["tokens"])[0] == 1
