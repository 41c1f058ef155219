"""What GPT generates: against Hugging Face's generate, plain Python, and itself without a cache."""

import itertools

import numpy as np
import pytest

from tf_bert.configs import GPTConfig
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.language_model import generate_text, stream_text
from tf_bert.decoding.sampling import Greedy, Sampling
from tf_bert.models.gpt import GPT, positions_of

END = 19
SIZES = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SIZES |= {"max_position_embeddings": 12}
PROMPTS = [[5, 6, 7], [5, 6, 7, 8, 9], [3]]


def gpt(dtype="float64", **settings) -> GPT:
    """A GPT with every variable away from its start."""
    model = GPT(GPTConfig(**{**SIZES, "pre_norm": True, "end_id": END, **settings}), dtype=dtype)
    rng = np.random.default_rng(1)
    for variable in model.weights:
        start = 1.0 if variable.path.endswith("gamma") else 0.0
        variable.assign(start + 0.7 * rng.normal(size=variable.shape))
    return model


@pytest.fixture(scope="module")
def model():
    return gpt()


def next_log_probs(model, ids):
    """What the model says after the last ids that have room: one call without mask or cache."""
    window = ids[-model.config.max_position_embeddings :]
    logits = np.asarray(model({"input_ids": np.array([window])})["logits"][0, -1])
    return logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()


def greedy_by_hand(model, prompt, max_length):
    """Tokens and the sum of their log-probabilities."""
    ids, total = list(prompt), 0.0
    for _ in range(max_length):
        log_probs = next_log_probs(model, ids)
        ids.append(int(log_probs.argmax()))
        total += log_probs.max()
        if ids[-1] == END:
            break
    return ids[len(prompt) :], total


def tokens_of(result, row, rank=0):
    return [int(token) for token in result["tokens"][row, rank, : result["lengths"][row, rank]]]


def test_hugging_faces_generate(golden):
    file, model = np.load(golden / "hf/gpt2/expected.npz"), GPT.from_checkpoint(golden / "hf/gpt2")
    found = model.generate(file["input/input_ids"], max_length=16)["tokens"][:, 0]
    np.testing.assert_array_equal(found, file["output/greedy"][:, 12:])
    search, ten = BeamSearch(4, n_best=4), Constraints(min_length=11)
    found = model.generate(file["input/input_ids"], search, max_length=10, constraints=ten)
    np.testing.assert_array_equal(found["tokens"].reshape(12, 10), file["output/beam4_sequences"][:, 12:])
    np.testing.assert_allclose(found["log_probs"].reshape(-1), file["output/beam4_sum_log_probs"], atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "use_cache"),
    [
        ({}, True),
        ({"pre_norm": False, "attention_window": 3, "num_hidden_layers": 2}, True),
        pytest.param({}, False, marks=pytest.mark.slow),
    ],
)
def test_prompts_of_different_lengths_get_what_each_gets_alone(model, settings, use_cache):
    model = gpt(**settings) if settings else model
    result = model.generate(PROMPTS, max_length=[7, 4, 7], use_cache=use_cache)
    for row, prompt in enumerate(PROMPTS):
        limit = [7, 4, 7][row]
        tokens, log_prob = greedy_by_hand(model, prompt, limit)
        assert tokens_of(result, row) == tokens
        assert result["log_probs"][row, 0] == pytest.approx(log_prob, abs=1e-10)
    alone = model.generate([prompt], max_length=limit, use_cache=use_cache)  # the last, a single token
    assert tokens_of(alone, 0) == tokens
    assert alone["log_probs"][0, 0] == pytest.approx(log_prob, abs=1e-10)


def test_positions_follow_the_mask():
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    np.testing.assert_array_equal(positions_of(mask), [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])


def test_logits_with_a_cache_are_those_without(model):
    """Every step of forced tokens, in one batch with padding."""
    ids = np.array([[0, 0, 5, 6], [3, 4, 5, 6]], "int32")
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 1]], bool)
    going_on = np.array([[7, 8, 9, 1], [2, 2, 11, 0]], "int32")
    steps = [model.start_decoding(ids, mask, 1, 5, False, use_cache) for use_cache in (True, False)]
    (cached, caches), (whole, state) = steps
    tokens = ids[:, -1]
    for index in range(4):
        fast, caches, _ = cached(tokens, index, caches)
        slow, state, _ = whole(tokens, index, state)
        np.testing.assert_allclose(fast, slow, atol=1e-12)
        tokens = going_on[:, index]


def test_beam_is_exhaustive_search_where_it_is_wide_enough():
    model = gpt(vocab_size=4, end_id=3)
    result = model.generate([[1, 2], [0]], BeamSearch(16, n_best=3), max_length=3)
    for row, prompt in enumerate([[1, 2], [0]]):
        every = np.array(list(itertools.product(range(4), repeat=3)))
        ids = np.concatenate([np.repeat([prompt], 64, axis=0), every], axis=1)
        logits = np.asarray(model({"input_ids": ids})["logits"])[:, len(prompt) - 1 : -1]
        gains = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        gains = np.take_along_axis(gains, every[..., None], axis=-1)[..., 0]  # [64, 3]
        scores = {}
        for tokens, gain in zip(every.tolist(), gains, strict=True):
            length = tokens.index(3) + 1 if 3 in tokens else 3
            scores[tuple(tokens[:length])] = gain[:length].sum()
        best = sorted(scores.items(), key=lambda item: -item[1])[:3]
        for rank, (tokens, score) in enumerate(best):
            assert tokens_of(result, row, rank) == list(tokens)
            assert result["log_probs"][row, rank] == pytest.approx(score, abs=1e-10)


def test_sampling_depends_on_seed_and_prompt_alone(model):
    search = Sampling(temperature=1.5, top_k=10, top_p=0.9, num_samples=2)
    together = model.generate(PROMPTS, search, max_length=5, seeds=[4, 5, 6])
    alone = model.generate([PROMPTS[1]], search, max_length=5, seeds=[5])
    for sample in range(2):
        assert tokens_of(alone, 0, sample) == tokens_of(together, 1, sample)
    again = model.generate(PROMPTS, search, max_length=5, seeds=4)
    np.testing.assert_array_equal(again["tokens"], together["tokens"])
    other = model.generate(PROMPTS, search, max_length=5, seeds=40)
    assert (other["tokens"] != together["tokens"]).any()


@pytest.mark.slow
def test_no_choice_is_left(model):
    """Temperature 0, top-k 1 and top-p 0 are greedy; top-k above the vocabulary and top-p 1 change nothing."""
    greedy = model.generate(PROMPTS, max_length=4)["tokens"]
    for options in ({"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}):
        np.testing.assert_array_equal(model.generate(PROMPTS, Sampling(**options), max_length=4)["tokens"], greedy)
    free = model.generate(PROMPTS, Sampling(), max_length=4, seeds=3)["tokens"]
    for options in ({"top_k": 999}, {"top_p": 1.0}):
        found = model.generate(PROMPTS, Sampling(**options), max_length=4, seeds=3)["tokens"]
        np.testing.assert_array_equal(found, free)


def test_penalties_know_the_prompt_but_not_its_padding(model):
    constraints = Constraints(repetition_penalty=3.0, presence_penalty=0.5)
    result = model.generate(PROMPTS, constraints=constraints, max_length=6)
    for row, prompt in enumerate(PROMPTS):
        ids = list(prompt)
        for _ in range(6):
            logits = np.array(model({"input_ids": np.array([ids])})["logits"][0, -1])
            for token in set(ids):
                logits[token] = (logits[token] / 3 if logits[token] > 0 else logits[token] * 3) - 0.5
            ids.append(int(logits.argmax()))
            if ids[-1] == END:
                break
        assert tokens_of(result, row) == ids[len(prompt) :]


def test_lengths_and_stop_sequences(model):
    free = [greedy_by_hand(model, prompt, 7)[0] for prompt in PROMPTS]
    stop = tuple(free[0][1:3])
    result = model.generate(PROMPTS, max_length=7, constraints=Constraints(stop_sequences=(stop,)))
    assert tokens_of(result, 0) == free[0][:3] or tokens_of(result, 0)[-2:] == list(stop)
    assert model.generate(PROMPTS, max_length=[0, 3, 2])["lengths"][:, 0].max() <= 3
    assert model.generate([PROMPTS[0]], max_length=0)["lengths"][0, 0] == 0
    never = Constraints(banned_ids=tuple(range(18)), min_length=4)
    assert tokens_of(model.generate([[5]], max_length=8, constraints=never), 0)[:3] == [18] * 3


def test_streamed_tokens_are_those_of_the_whole(model):
    for search in (None, Sampling(num_samples=2)):
        whole = model.generate(PROMPTS, search, max_length=[7, 2, 5], seeds=1)
        steps = np.stack(list(model.stream(PROMPTS, search, max_length=[7, 2, 5], seeds=1)), axis=-1)
        assert steps.shape[-1] == whole["lengths"].max()
        for row, rank in itertools.product(range(3), range(steps.shape[1])):
            length = whole["lengths"][row, rank]
            np.testing.assert_array_equal(steps[row, rank, :length], whole["tokens"][row, rank, :length])
    assert list(model.stream([[5]], max_length=0)) == []
    with pytest.raises(ValueError, match="cannot be streamed"):
        model.stream(PROMPTS, BeamSearch(), max_length=2)


class TestContext:
    def test_the_end_of_the_context(self, model):
        """Eight of twelve positions and four new tokens fit; one more does not, and both numbers are named."""
        assert model.generate([[1] * 8], max_length=4)["lengths"].max() <= 4
        with pytest.raises(ValueError, match="10 tokens and 4 new ones .* 12 positions"):
            model.generate([[1] * 10], max_length=4)
        with pytest.raises(ValueError, match="prompt 1 has 13 tokens and 1 new ones .* 12 positions"):
            model.generate([[1], [1] * 13], max_length=1)

    def test_the_window_slides_when_asked_to(self, model):
        prompts = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], [5, 6, 7, 8, 9, 10, 11, 12], [3]]
        constraints = Constraints(banned_ids=(END,))
        result = model.generate(prompts, max_length=9, constraints=constraints, sliding_window=True)
        for row, prompt in enumerate(prompts):
            ids = list(prompt)
            for _ in range(9):
                log_probs = next_log_probs(model, ids)
                log_probs[END] = -np.inf
                ids.append(int(log_probs.argmax()))
            assert tokens_of(result, row) == ids[len(prompt) :]

    def test_a_row_that_has_ended_waits_beyond_the_context(self, model):
        result = model.generate([[1] * 11, [2]], max_length=[1, 11], constraints=Constraints(banned_ids=(END,)))
        assert list(result["lengths"][:, 0]) == [1, 11] and np.isfinite(result["log_probs"]).all()


class Letters:
    """A tokenizer for tests: one byte of UTF-8 is one token, less 110."""

    def tokenize_to_ids(self, text):
        return [byte - 110 for byte in text.encode()]

    def decode(self, ids):
        return bytes(token + 110 for token in ids).decode(errors="replace")


def test_text():
    model = gpt(vocab_size=140, end_id=139)
    texts = generate_text(model, ["nn", "o"], Letters(), max_length=4)
    expected = [greedy_by_hand(model, Letters().tokenize_to_ids(text), 4)[0] for text in ("nn", "o")]
    assert texts == [Letters().decode(tokens) for tokens in expected]
    assert "".join(stream_text(model, "nn", Letters(), max_length=4)) == texts[0]
    for options in ({}, {"search": BeamSearch(2)}, {"max_length": [4, 3, 4]}):
        found = generate_text(model, ["nn", "", "o"], Letters(), **{"max_length": 4, **options})
        assert found[1] == "" and ("search" in options or [found[0], found[2]] == texts)
    assert generate_text(model, [], Letters()) == []


def test_half_a_character_is_never_shown(monkeypatch):
    import tf_bert.decoding.language_model as module

    tokens = [byte - 110 for byte in "nüo".encode()] + [0xC3 - 110]
    monkeypatch.setattr(module, "stream", lambda *_, **__: (np.array([[token]]) for token in tokens))
    assert list(stream_text(gpt(vocab_size=140, end_id=None), "n", Letters())) == ["n", "ü", "o", "\ufffd"]


def test_a_model_without_an_end_token():
    model = gpt(end_id=None)
    result = model.generate(PROMPTS, BeamSearch(2), max_length=5)
    assert (result["lengths"] == 5).all()


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([[]], {}, "the prompt is empty"),
        ([[1], []], {}, "prompt 1 is empty"),
        ([[20]], {}, "the prompt holds 20, but there are 20 tokens"),
        ([[1], [-1]], {}, "prompt 1 holds -1"),
        ([[1]], {"max_length": -1}, "max_length must be at least 0"),
        ([[1]], {"max_length": [1, 2]}, "max_length has 2 values for 1 prompts"),
        ([[1]], {"search": Sampling(), "seeds": [1, 2]}, "2 seeds for 1 prompts"),
        ([[1]], {"constraints": Constraints(banned_ids=(20,))}, "name token 20"),
    ],
)
def test_mistakes_are_named(model, prompts, options, message):
    with pytest.raises(ValueError, match=message):
        model.generate(prompts, **{"max_length": 2, **options})


@pytest.mark.slow
def test_compiled_by_xla(model):
    for search in (Greedy(), BeamSearch(3)):
        plain = model.generate(PROMPTS, search, max_length=5)
        fast = model.generate(PROMPTS, search, max_length=5, jit_compile=True)
        np.testing.assert_array_equal(plain["tokens"], fast["tokens"])
        np.testing.assert_allclose(plain["log_probs"], fast["log_probs"], atol=1e-10)
