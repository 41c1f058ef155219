"""The profile of a run: which steps, where it lies, and what is said when there is none."""

import pytest

from tests.support.toy_model import Toy, batches, toy_data
from tf_bert.training.profiling import ProfileSteps


@pytest.fixture(scope="module")
def model():
    model = Toy()
    model.compile("sgd")
    return model


def test_some_steps_are_traced(model, tmp_path, capsys):
    profile = ProfileSteps(tmp_path, steps=2, skip=1)
    model.fit(batches(toy_data(8), 2), callbacks=[profile], verbose=0)
    (trace,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 1000
    assert f"the profile of 2 executions is in {trace.parent}" in capsys.readouterr().err


def test_training_that_ends_within_the_profile(model, tmp_path, capsys):
    model.fit(batches(toy_data(8), 2), callbacks=[ProfileSteps(tmp_path, steps=9, skip=1)], verbose=0)
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))
    assert "the profile of 3 executions" in capsys.readouterr().err


@pytest.mark.parametrize(("writes", "said"), [(True, "nothing was profiled"), (False, "")])
def test_training_that_ends_before_it(model, tmp_path, capsys, writes, said):
    model.fit(batches(toy_data(4), 2), callbacks=[ProfileSteps(tmp_path, 2, skip=9, writes=writes)], verbose=0)
    assert not list(tmp_path.iterdir())
    text = capsys.readouterr().err
    assert said in text if said else not text
