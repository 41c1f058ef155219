"""The decoding loop against exhaustive search, plain Python and values worked out by hand."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tf_bert.backend import compiled
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.loop import DecodingLoop, Setup
from tf_bert.decoding.sampling import Greedy, Sampling, keep_likely, uniform_numbers
from tf_bert.layers.recurrent_decoder import repeat_rows

END, PAD, START = 0, 3, 4
S = 3


class Toy:
    """A recurrent model of two equations that can be written down in numpy: what follows depends on all that came."""

    def __init__(self, vocab_size=5, hidden=6, seed=0, source_seed=1, batch=1):
        rng = np.random.default_rng(seed)
        self.vocab_size = vocab_size
        self.recurrent = rng.normal(size=(hidden, hidden))
        self.embedding = rng.normal(size=(vocab_size, hidden))
        self.output = rng.normal(size=(hidden, vocab_size))
        self.bias = np.zeros(vocab_size)
        self.align = rng.normal(size=(hidden, S)) * 2
        self.state = np.random.default_rng(source_seed).normal(size=(batch, hidden))

    def step(self, tokens, index, state):
        state = ops.tanh(ops.matmul(state, self.recurrent) + ops.take(self.embedding, tokens, axis=0))
        return ops.matmul(state, self.output) + self.bias, state, ops.softmax(ops.matmul(state, self.align))

    def log_probs(self, member, tokens):
        """Log-probabilities [T,V] at each step of the given tokens, and attention [T,S], in numpy."""
        state, rows, attention = self.state[member], [], []
        for token in [START, *tokens][: len(tokens)]:
            state = np.tanh(state @ self.recurrent + self.embedding[token])
            logits, scores = state @ self.output + self.bias, state @ self.align
            rows.append(logits - np.log(np.exp(logits).sum()))
            attention.append(np.exp(scores) / np.exp(scores).sum())
        return np.array(rows), np.array(attention)

    def log_prob(self, member, tokens):
        rows, _ = self.log_probs(member, tokens)
        return sum(row[token] for row, token in zip(rows, tokens, strict=True))


def decode(toy, search, max_length=4, constraints=None, members=None, graph=False, length=None, seeds=None, **setup):
    members = range(len(toy.state)) if members is None else members
    if seeds is not None:
        setup["uniform"] = uniform_numbers(seeds, search.width, length or int(np.max(max_length)))
    limits = np.broadcast_to(np.asarray(max_length, "int32"), (len(members),))
    setup = Setup(
        vocab_size=toy.vocab_size,
        end_id=END,
        pad_id=PAD,
        length=length or int(limits.max()),
        max_length=ops.convert_to_tensor(limits),
        constraints=constraints or Constraints(banned_ids=(PAD, START)),
        dtype="float64",
        **setup,
    )
    loop = DecodingLoop(toy.step, search, setup)
    start = np.full(len(members), START, "int32")
    state = repeat_rows(ops.convert_to_tensor(toy.state[list(members)]), search.width)
    run = compiled(loop.run) if graph else loop.run
    return {name: np.asarray(value) for name, value in run(ops.convert_to_tensor(start), state).items()}


def outputs(vocabulary, max_length):
    """Every output there is: complete ones, and those of the greatest length without end."""
    words = [word for word in vocabulary if word != END]
    for length in range(max_length):
        for tokens in itertools.product(words, repeat=length):
            yield [*tokens, END]
    yield from map(list, itertools.product(words, repeat=max_length))


def best_of_all(toy, member, max_length, score, vocabulary=(END, 1, 2)):
    return sorted(((score(tokens), tokens) for tokens in outputs(vocabulary, max_length)), key=lambda x: -x[0])


def words(result, member=0, rank=0):
    return list(result["tokens"][member, rank, : result["lengths"][member, rank]])


@pytest.mark.parametrize(
    ("alpha", "beta", "graph"),
    [(0.0, 0.0, False), (1.0, 0.0, False), (0.6, 0.4, False), (-0.5, 0.0, False), (0.6, 0.4, True)],
)
def test_beam_of_full_width_is_exhaustive_search(alpha, beta, graph):
    toy = Toy(batch=3)
    result = decode(
        toy, BeamSearch(81, alpha, beta, 5), graph=graph, source_mask=np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]]) > 0
    )
    mask = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]])
    for member in range(3):

        def score(tokens, member=member):
            _, attention = toy.log_probs(member, tokens)
            coverage = (np.log(np.minimum(attention.sum(0), 1)) * mask[member]).sum()
            return toy.log_prob(member, tokens) / ((5 + len(tokens)) / 6) ** alpha + beta * coverage

        for rank, (expected, tokens) in enumerate(best_of_all(toy, member, 4, score)[:5]):
            assert words(result, member, rank) == tokens
            assert result["scores"][member, rank] == pytest.approx(expected, abs=1e-10)
            assert result["log_probs"][member, rank] == pytest.approx(toy.log_prob(member, tokens), abs=1e-10)
            _, attention = toy.log_probs(member, tokens)
            assert list(result["alignments"][member, rank, : len(tokens)]) == list(attention.argmax(1))
        assert np.all(result["tokens"][member, 0, result["lengths"][member, 0] :] == PAD)


class Table:
    """A model given as a table from what came to what follows."""

    vocab_size = 3
    state = np.zeros((1, 4))

    def __init__(self, table, otherwise):
        self.table, self.otherwise = table, otherwise

    def step(self, tokens, index, state):
        state = np.array(state)
        if int(index):
            state[:, int(index) - 1] = tokens
        rows = [self.table.get(tuple(int(t) for t in row[: int(index)]), self.otherwise) for row in state]
        return np.log(np.array(rows)), state, None


KNOWN = Table({(): [0.5, 0.45, 0.05], (1,): [0.03, 0.95, 0.02], (1, 1): [0.95, 0.03, 0.02]}, [0.9, 0.05, 0.05])


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(0.0, [([0], -0.693147), ([1, 1, 0], -0.901094)]), (1.0, [([1, 1, 0], -0.675821), ([0], -0.693147)])],
)
def test_search_stops_only_when_no_live_hypothesis_can_overtake(alpha, expected):
    for n_best in (1, 2):
        result = decode(KNOWN, BeamSearch(2, alpha, n_best=n_best), constraints=Constraints())
        for rank, (tokens, score) in enumerate(expected[:n_best]):
            assert words(result, rank=rank) == tokens
            assert result["scores"][0, rank] == pytest.approx(score, abs=1e-6)


def greedy_by_hand(toy, member, max_length, choose=None):
    tokens = []
    while len(tokens) < max_length and END not in tokens:
        row = toy.log_probs(member, [*tokens, END])[0][-1].copy()
        row[[PAD, START]] = -np.inf
        tokens.append(int(row.argmax()) if choose is None else choose(row, tokens))
    return tokens


def test_greedy_is_beam_of_one_and_plain_python():
    toy = Toy(batch=8)
    greedy, beam = decode(toy, Greedy(), 6), decode(toy, BeamSearch(1), 6)
    for member in range(8):
        assert words(greedy, member) == words(beam, member) == greedy_by_hand(toy, member, 6)
        assert greedy["log_probs"][member, 0] == pytest.approx(toy.log_prob(member, words(greedy, member)), abs=1e-10)
    assert len({tuple(words(greedy, member)) for member in range(8)}) > 2


def beam_by_hand(toy, member, width, max_length, alpha):
    """Beam search in lists, without any stopping before the greatest length."""
    alive, finished = [([], 0.0)], []
    for length in range(1, max_length + 1):
        continuations = []
        for tokens, score in alive:
            row = toy.log_probs(member, [*tokens, END])[0][-1]
            continuations += [([*tokens, w], score + row[w]) for w in range(toy.vocab_size) if w not in (PAD, START)]
        continuations.sort(key=lambda x: -x[1])
        for tokens, score in continuations[:width]:
            if tokens[-1] == END or length == max_length:
                finished.append((tokens, score / ((5 + length) / 6) ** alpha))
        alive = [c for c in continuations if c[0][-1] != END][:width]
    return sorted(finished, key=lambda x: -x[1])


@pytest.mark.parametrize("width", [3])
def test_narrow_beam_is_plain_python_with_and_without_batch(width):
    toy = Toy(vocab_size=9, seed=3, batch=6)
    search = BeamSearch(width, 0.7, n_best=2)
    together = decode(toy, search, [7, 3, 7, 1, 5, 7], source_mask=np.ones((6, S), bool), length=9)
    for member, limit in ((0, 7), (1, 3), (3, 1), (4, 5)):
        alone = decode(toy, search, limit, members=[member], source_mask=np.ones((1, S), bool))
        np.testing.assert_array_equal(together["lengths"][member], alone["lengths"][0])
        for name in ("scores", "log_probs"):
            np.testing.assert_allclose(together[name][member], alone[name][0], rtol=1e-14)
        for name in ("tokens", "alignments"):
            np.testing.assert_array_equal(together[name][member, :, :limit], alone[name][0])
        for rank, (tokens, score) in enumerate(beam_by_hand(toy, member, width, limit, 0.7)[:2]):
            assert words(together, member, rank) == tokens
            assert together["scores"][member, rank] == pytest.approx(score, abs=1e-10)


def test_exact_stopping_saves_steps():
    """The same result, and the loop ends early: counted by the model itself."""
    toy, calls = Toy(seed=5), []
    eager_step = toy.step
    toy.step = lambda *args: calls.append(1) or eager_step(*args)
    toy.bias[END] = 3.0
    result = decode(toy, BeamSearch(3, 0.6), 40)
    assert words(result) == beam_by_hand(toy, 0, 3, 8, 0.6)[0][0]
    assert len(calls) < 40


def test_fewer_hypotheses_than_asked_for():
    result = decode(Toy(), BeamSearch(9, n_best=9), 1)
    assert list(result["lengths"][0]) == [1, 1, 1] + [0] * 6
    assert np.all(result["scores"][0, 3:] == -np.inf) and np.all(result["tokens"][0, 3:] == PAD)


def test_search_finds_nothing_when_there_is_no_room():
    for search in (Greedy(), BeamSearch(2)):
        result = decode(Toy(batch=2), search, [0, 2], length=3)
        assert result["lengths"][0, 0] == 0 and np.all(result["tokens"][0] == PAD) and result["lengths"][1, 0] > 0


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3), Sampling()])
def test_minimum_length(search):
    toy = Toy(batch=4, seed=2)
    toy.bias[END] = 5.0  # would rather end at once
    seeds = range(4)
    assert decode(toy, search, 6, seeds=seeds)["lengths"].max() < 4
    constraints = Constraints(min_length=4, banned_ids=(PAD, START))
    result = decode(toy, search, 6, constraints, seeds=seeds)
    assert result["lengths"].min() == 4
    for member in range(4):
        assert result["log_probs"][member, 0] == pytest.approx(toy.log_prob(member, words(result, member)), abs=1e-10)


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(3), Sampling()])
def test_forced_prefix(search):
    toy = Toy(batch=4, seed=2)
    prefix = np.array([[2, 1, 2], [1, PAD, PAD], [PAD, PAD, PAD], [1, END, PAD]], "int32")
    result = decode(toy, search, 6, prefix=prefix, seeds=range(4))
    free = decode(toy, search, 6, seeds=range(4))
    assert words(result, 0)[:3] == [2, 1, 2] and words(result, 1)[0] == 1 and words(result, 3) == [1, END]
    assert words(result, 2) == words(free, 2)
    for member in range(4):
        assert result["log_probs"][member, 0] == pytest.approx(toy.log_prob(member, words(result, member)), abs=1e-10)


@pytest.mark.parametrize("search", [Greedy(), BeamSearch(8, n_best=8)])
def test_stop_sequences_end_the_output(search):
    toy = Toy(batch=6, seed=4)
    toy.bias[END] = -9.0
    free = decode(toy, search, 9)
    sequence = tuple(words(free)[2:4])
    constraints = Constraints(stop_sequences=(sequence, (1, 1, 1, 1, 1, 2)), banned_ids=(PAD, START))
    result = decode(toy, search, 9, constraints)
    assert words(result)[-2:] == list(sequence) and len(words(result)) <= 4
    for member, rank in itertools.product(range(6), range(search.width if search.revises else 1)):
        found = words(result, member, rank)
        for i in range(len(found) - 2):
            assert tuple(found[i : i + 2]) != sequence


def test_repetition_penalty_of_negative_logits():
    logits, seen = np.array([2.0, -1.0, 0.5, -3.0]), np.array([1, 1, 0, 0])
    found = np.asarray(Constraints(repetition_penalty=1.5).penalise(logits, seen))
    np.testing.assert_allclose(found, [1.333333, -1.5, 0.5, -3.0], atol=1e-6)
    np.testing.assert_allclose(ops.softmax(found), [0.663773, 0.039041, 0.288475, 0.008711], atol=1e-6)
    found = np.asarray(Constraints(presence_penalty=0.25).penalise(logits, seen))
    np.testing.assert_allclose(found, [1.75, -1.25, 0.5, -3.0])


def test_penalties_count_what_was_generated_and_what_the_prompt_holds():
    toy = Toy(vocab_size=12, batch=4, seed=6)
    toy.bias[END] = -9.0
    constraints = Constraints(repetition_penalty=3.0, presence_penalty=1.0, banned_ids=(PAD, START))
    seen = np.zeros((4, 12), bool)
    seen[:, 5] = True
    greedy = decode(toy, Greedy(), 6, constraints, seen=seen)
    beam = decode(toy, BeamSearch(1), 6, constraints, seen=seen)
    for member in range(4):
        state, tokens = toy.state[member], []
        for token in [START, *words(greedy, member)][:6]:
            state = np.tanh(state @ toy.recurrent + toy.embedding[token])
            logits = state @ toy.output + toy.bias
            for repeated in {*tokens, 5}:
                logits[repeated] = (logits[repeated] / 3 if logits[repeated] > 0 else logits[repeated] * 3) - 1
            logits[[PAD, START]] = -np.inf
            tokens.append(int(logits.argmax()))
        assert words(greedy, member) == words(beam, member) == tokens
        # What the model says stays what the model says.
        assert greedy["log_probs"][member, 0] == pytest.approx(toy.log_prob(member, tokens), abs=1e-10)
        assert greedy["scores"][member, 0] != pytest.approx(greedy["log_probs"][member, 0], abs=1e-3)
    assert {tuple(words(greedy, m)) for m in range(4)} != {tuple(words(decode(toy, Greedy(), 6), m)) for m in range(4)}
    wide = decode(toy, BeamSearch(4, n_best=4), 6, constraints, seen=seen)
    assert wide["scores"][:, 0].min() > -math.inf


def test_sampling_follows_the_distribution():
    toy = Toy(seed=1)
    result = decode(toy, Sampling(num_samples=4000), 2, seeds=[7])
    row = np.exp(toy.log_probs(0, [END])[0][0]) * np.array([1, 1, 1, 0, 0])
    shares = np.bincount(result["tokens"][0, :, 0], minlength=5) / 4000
    np.testing.assert_allclose(shares, row / row.sum(), atol=0.03)
    second = result["tokens"][0, result["tokens"][0, :, 0] == 1, 1]
    row = np.exp(toy.log_probs(0, [1, END])[0][1]) * np.array([1, 1, 1, 0, 0])
    np.testing.assert_allclose(np.bincount(second, minlength=5) / len(second), row / row.sum(), atol=0.05)


def test_sampling_with_temperature_top_k_and_top_p():
    toy = Toy(seed=1)
    row = toy.log_probs(0, [END])[0][0][:3]
    order = np.argsort(-row)

    def shares(**options):
        result = decode(toy, Sampling(num_samples=3000, **options), 1, seeds=[3])
        return np.bincount(result["tokens"][0, :, 0], minlength=3) / 3000

    def expected(kept, temperature=1.0):
        p = np.where(np.isin(np.arange(3), kept), np.exp(row / temperature), 0)
        return p / p.sum()

    np.testing.assert_allclose(shares(temperature=2.0), expected(order, 2.0), atol=0.03)
    np.testing.assert_allclose(shares(temperature=0.0), expected(order[:1]))
    np.testing.assert_allclose(shares(top_k=1), expected(order[:1]))
    np.testing.assert_allclose(shares(top_k=2), expected(order[:2]), atol=0.03)
    np.testing.assert_allclose(shares(top_k=99), expected(order), atol=0.03)
    np.testing.assert_allclose(shares(top_p=0.0), expected(order[:1]))
    np.testing.assert_allclose(shares(top_p=1.0), expected(order), atol=0.03)
    most = np.sort(expected(order))[-1]
    np.testing.assert_allclose(shares(top_p=most + 0.01), expected(order[:2]), atol=0.03)
    np.testing.assert_allclose(shares(top_p=most - 0.01), expected(order[:1]))


def test_top_p_keeps_the_smallest_set():
    kept, tokens = keep_likely(np.log([0.1, 0.4, 0.2, 0.3]), 0, 0.7)
    np.testing.assert_allclose(np.exp(kept), [0.4, 0.3, 0.0, 0.0], atol=1e-12)
    assert list(np.asarray(tokens)) == [1, 3, 2, 0]


def kept_tokens(probs, dtype, top_p, top_k=0):
    kept, tokens = keep_likely(ops.log(ops.convert_to_tensor(probs, dtype)), top_k, top_p)
    return [int(token) for token in np.asarray(tokens)[np.isfinite(kept)]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_top_p_that_is_reached_exactly(dtype):
    """Sums of rounded probabilities lie a little below or above a bound that they reach."""
    for top_p, expected in ((0.5, [3]), (0.8, [3, 0]), (0.9, [3, 0, 1]), (0.8 + 1e-5, [3, 0, 1]), (1e-9, [3])):
        assert kept_tokens([0.3, 0.1, 0.1, 0.5], dtype, top_p) == expected
    assert kept_tokens([0.25] * 4, dtype, 0.5) == [0, 1]  # of equals the lower ids
    assert kept_tokens([0.1, 0.3, 0.3, 0.3], dtype, 1.0, top_k=2) == [1, 2]
    assert kept_tokens([0.2, 0.2, 0.2, 0.4], dtype, 0.5, top_k=2) == [3]  # 2/3 of the two that are left
    many = np.full(50_000, 1 / 50_000)
    assert len(kept_tokens(many, dtype, 0.5)) == 25_000


@pytest.mark.parametrize("seed", range(3))
def test_top_p_is_that_of_a_float64_oracle(seed):
    """Probabilities are whole hundredths, and every bound is one that some of them reach."""
    rng = np.random.default_rng(seed)
    hundredths = rng.multinomial(100, rng.dirichlet(np.ones(12)))
    hundredths = hundredths[hundredths > 0]
    order = np.argsort(-hundredths, kind="stable")
    for bound in range(1, 100):
        before = np.cumsum(hundredths[order]) - hundredths[order]
        assert kept_tokens(hundredths / 100, "float32", bound / 100) == list(order[before < bound])


def test_small_temperatures_are_greedy_and_forbidden_tokens_stay_so():
    toy = Toy(seed=1, batch=2)
    toy.bias[[PAD, START]] = 50.0  # banned, and by far the likeliest
    greedy = decode(toy, Greedy(), 4)["tokens"]
    for temperature in (0.0, 1e-300, 1e-37, 1e-10):
        np.testing.assert_array_equal(decode(toy, Sampling(temperature), 4, seeds=[1, 2])["tokens"], greedy)
    hot = decode(toy, Sampling(1e30, num_samples=300), 1, seeds=[1, 2])["tokens"]
    shares = np.bincount(hot.ravel(), minlength=5) / 600
    np.testing.assert_allclose(shares, [1 / 3, 1 / 3, 1 / 3, 0, 0], atol=0.06)


def test_a_sample_depends_on_its_seed_alone():
    toy = Toy(batch=5)
    search = Sampling(num_samples=3)
    together = decode(toy, search, 5, seeds=[4, 5, 6, 7, 4], length=7)
    again = decode(toy, search, 5, seeds=[4, 5, 6, 7, 4], graph=True)
    np.testing.assert_array_equal(together["tokens"][:, :, :5], again["tokens"])
    for member, seed in ((0, 4), (2, 6), (4, 4)):
        alone = decode(toy, search, 5, seeds=[seed], members=[member])
        np.testing.assert_array_equal(together["tokens"][member, :, :5], alone["tokens"][0])
        np.testing.assert_allclose(together["log_probs"][member], alone["log_probs"][0], rtol=1e-14)
    other = decode(toy, search, 5, seeds=[14, 15, 16, 17, 14])
    assert np.any(other["tokens"] != again["tokens"])
    assert len({tuple(words(together, 0, sample)) for sample in range(3)}) > 1


def test_streamed_tokens_are_those_of_the_whole():
    toy = Toy(batch=3, seed=9)
    for search in (Greedy(), Sampling(num_samples=2)):
        whole = decode(toy, search, 5, seeds=[1, 2, 3])
        setup = Setup(
            toy.vocab_size, END, PAD, 5, ops.full((3,), 5, "int32"), Constraints(banned_ids=(PAD, START)),
            uniform=uniform_numbers([1, 2, 3], search.width, 5), dtype="float64",
        )  # fmt: skip
        loop = DecodingLoop(toy.step, search, setup)
        state = repeat_rows(ops.convert_to_tensor(toy.state), search.width)
        steps = [np.asarray(tokens) for tokens in loop.stream(np.full(3, START), state, compiled)]
        streamed = np.stack(steps, axis=-1)
        np.testing.assert_array_equal(streamed, whole["tokens"][:, :, : streamed.shape[-1]])
        assert whole["lengths"].max() == streamed.shape[-1]
    with pytest.raises(ValueError, match="cannot be streamed"):
        next(DecodingLoop(toy.step, BeamSearch(), setup).stream(np.full(3, START), state))


def test_graph_with_unknown_batch_size():
    """As in an exported model."""
    toy = Toy(batch=4)

    def run(state):
        limits = ops.full((ops.shape(state)[0],), 5, "int32")
        setup = Setup(toy.vocab_size, END, PAD, 5, limits, Constraints(banned_ids=(PAD, START)), dtype="float64")
        loop = DecodingLoop(toy.step, BeamSearch(3), setup)
        return loop.run(ops.full((ops.shape(state)[0],), START, "int32"), repeat_rows(state, 3))

    graph = tf.function(run, input_signature=[tf.TensorSpec([None, 6], tf.float64)])
    np.testing.assert_array_equal(graph(toy.state)["tokens"], decode(toy, BeamSearch(3), 5)["tokens"])
    np.testing.assert_array_equal(graph(toy.state[:2])["tokens"], decode(toy, BeamSearch(3), 5)["tokens"][:2])


@pytest.mark.slow
def test_compiled_by_xla():
    toy = Toy(batch=2)
    for search in (BeamSearch(3, 0.6), Sampling(top_k=2)):
        uniform, limits = uniform_numbers([1, 2], search.width, 4), ops.full((2,), 4, "int32")
        setup = Setup(toy.vocab_size, END, PAD, 4, limits, uniform=uniform, dtype="float64")
        loop = DecodingLoop(toy.step, search, setup)
        state = repeat_rows(ops.convert_to_tensor(toy.state), search.width)
        start = ops.full((2,), START, "int32")
        fast, plain = compiled(loop.run, jit_compile=True)(start, state), loop.run(start, state)
        np.testing.assert_array_equal(fast["tokens"], plain["tokens"])
        np.testing.assert_allclose(fast["scores"], plain["scores"], atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BeamSearch(0), "beam_size must be at least 1"),
        (lambda: BeamSearch(2, n_best=3), "between 1 and beam_size 2, got 3"),
        (lambda: BeamSearch(2, coverage_penalty=-1.0), "coverage_penalty"),
        (lambda: BeamSearch(2, length_penalty=math.nan), "length_penalty must be a finite number"),
        (lambda: BeamSearch(2, coverage_penalty=math.inf), "coverage_penalty must be a finite number"),
        (lambda: Sampling(temperature=-1.0), "temperature"),
        (lambda: Sampling(temperature=math.inf), "temperature must be a finite number"),
        (lambda: Sampling(temperature=math.nan), "temperature must be a finite number"),
        (lambda: Sampling(top_p=math.nan), "top_p"),
        (lambda: Sampling(top_p=1.5), "top_p"),
        (lambda: Sampling(top_k=-1), "top_k"),
        (lambda: Sampling(num_samples=0), "num_samples"),
        (lambda: Constraints(repetition_penalty=0.0), "repetition_penalty"),
        (lambda: Constraints(repetition_penalty=math.nan), "repetition_penalty must be a finite number"),
        (lambda: Constraints(presence_penalty=math.nan), "presence_penalty must be a finite number"),
        (lambda: Constraints(min_length=-1), "min_length"),
        (lambda: Constraints(stop_sequences=((),)), "stop sequence"),
        (lambda: decode(Toy(), Sampling()), "needs random numbers"),
        (lambda: decode(Toy(), BeamSearch(coverage_penalty=0.2)), "looks at a source"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_options_can_be_told_apart():
    """Compiled graphs are kept by their options."""
    assert BeamSearch(4) == BeamSearch(4) and hash(BeamSearch(4)) == hash(BeamSearch(4))
    assert Greedy() != Sampling() and dataclasses.replace(Sampling(), top_k=3) != Sampling()
