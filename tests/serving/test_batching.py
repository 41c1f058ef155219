"""Sequences that arrive together run together: every answer is its own, whatever the batch."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_bert.serving.batching import QueueFull, TokenBatcher, choose_batch


def sums(inputs):
    ids = inputs["input_ids"]
    return {"sum": ids.sum(axis=1), "twice": 2 * ids}


def sequence(*ids):
    return {"input_ids": np.array(ids, np.int32)}


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 600))
@settings(max_examples=100, deadline=None)
def test_a_batch_has_the_oldest_and_little_padding(lengths, max_tokens):
    chosen = choose_batch(lengths, max_tokens, 0.1)
    assert chosen[0] == 0 and len(set(chosen)) == len(chosen)
    width, count = max(lengths[number] for number in chosen), len(chosen)
    assert count == 1 or width * count <= max_tokens
    assert width * count - sum(lengths[number] for number in chosen) <= 0.1 * width * count


def test_every_sequence_gets_its_own_outputs():
    rng = np.random.default_rng(0)
    batcher = TokenBatcher(sums, max_batch_tokens=200)
    sequences = [sequence(*rng.integers(1, 100, rng.integers(1, 50))) for _ in range(300)]
    answers = [None] * len(sequences)

    def ask(numbers):
        for number in numbers:
            (future,) = batcher.submit([sequences[number]])
            answers[number] = future.result(10)

    threads = [threading.Thread(target=ask, args=(range(start, 300, 16),)) for start in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for given_, answer in zip(sequences, answers, strict=True):
        ids = given_["input_ids"]
        assert answer["sum"] == ids.sum()
        assert (answer["twice"][: len(ids)] == 2 * ids).all() and not answer["twice"][len(ids) :].any()
    batcher.close()
    done = batcher.statistics
    assert done.sequences == 300 and done.batches < 300 and done.tokens == sum(len(s["input_ids"]) for s in sequences)
    assert done.padding <= 0.1 * (done.tokens + done.padding)


class Gate:
    """A model that waits until it may go on."""

    def __init__(self):
        self.open, self.batches = threading.Event(), []

    def __call__(self, inputs):
        self.open.wait(10)
        self.batches.append(inputs["input_ids"].shape)
        return sums(inputs)


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.002)
    raise AssertionError("it did not happen")


def test_short_sequences_do_not_wait_for_all_long_ones():
    gate = Gate()
    batcher = TokenBatcher(gate, max_batch_tokens=100, max_delay=0.0)
    first = batcher.submit([sequence(1)])
    wait_for(lambda: len(batcher) == 0)
    batcher.submit([sequence(*range(1, 101)) for _ in range(1)])
    short = batcher.submit([sequence(1, 2) for _ in range(10)])
    more = batcher.submit([sequence(*range(1, 101)) for _ in range(5)])
    gate.open.set()
    for future in [*first, *short, *more]:
        future.result(10)
    assert gate.batches[:3] == [(1, 1), (1, 100), (10, 2)]  # one long one, which came first; then all short ones
    batcher.close()


def test_a_full_queue_refuses_all_or_nothing():
    gate = Gate()
    batcher = TokenBatcher(gate, max_queue=3, max_delay=0.0)
    batcher.submit([sequence(1)])
    wait_for(lambda: len(batcher) == 0)
    kept = batcher.submit([sequence(1), sequence(2)])
    with pytest.raises(QueueFull) as caught:
        batcher.submit([sequence(3), sequence(4)])
    assert caught.value.retry_after >= 1 and len(batcher) == 2
    gate.open.set()
    assert [int(future.result(10)["sum"]) for future in kept] == [1, 2]
    batcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit([sequence(1)])


def test_a_cancelled_sequence_frees_its_place():
    gate = Gate()
    batcher = TokenBatcher(gate, max_delay=0.0)
    batcher.submit([sequence(1)])
    wait_for(lambda: len(batcher) == 0)
    gone, stays = batcher.submit([sequence(1, 2, 3), sequence(4, 5, 6)])
    assert gone.cancel()
    gate.open.set()
    assert stays.result(10)["sum"] == 15
    batcher.close()
    assert gate.batches == [(1, 1), (1, 3)]


def test_an_error_reaches_its_batch_only():
    def fails_on_nines(inputs):
        if (inputs["input_ids"] == 9).any():
            raise ValueError("nine")
        return sums(inputs)

    batcher = TokenBatcher(fails_on_nines, max_delay=0.0)
    (bad,) = batcher.submit([sequence(9)])
    with pytest.raises(ValueError, match="nine"):
        bad.result(10)
    (good,) = batcher.submit([sequence(1)])
    assert good.result(10)["sum"] == 1
    batcher.close()
    assert batcher.statistics.failed == 1


def test_closing_answers_what_waits():
    gate = Gate()
    batcher = TokenBatcher(gate, max_delay=0.0)
    futures = batcher.submit([sequence(1)] * 5)
    threading.Timer(0.05, gate.open.set).start()
    batcher.close()
    assert [int(future.result(0)["sum"]) for future in futures] == [1] * 5
