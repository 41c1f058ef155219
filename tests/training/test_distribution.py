"""Where training runs: strategies by name, their flags, batches with static shapes, what a TPU needs of the step."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import ROOT
from tests.support.replica_runs import MODELS, OPTIMIZERS, task_data, with_dropout
from tests.support.toy_model import Toy, batches, toy_data, weights
from tests.training.test_replicas import free_ports, start
from tf_bert.commands import (
    finetuning_flags,
    run_classifier,
    run_gpt,
    run_language_modeling,
    run_ner,
    run_pretraining,
    run_squad,
)
from tf_bert.commands.distribution_flags import add_distribution_flags, strategy_from_flags
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.models import pretrained
from tf_bert.training import distribution, recipe
from tf_bert.training.distribution import distribute, get_strategy, pad_last_batch, set_logical_cpus, set_precision
from tf_bert.training.finetuning import FineTuning
from tf_bert.training.options import FineTuningOptions, RunOptions


@pytest.fixture
def flags():
    made = Flags("command", "Example: command")
    add_distribution_flags(made)
    return made


def test_strategies_by_name():
    assert get_strategy("off") is tf.distribute.get_strategy()
    one_device = get_strategy("one_device")
    assert isinstance(one_device, tf.distribute.OneDeviceStrategy)
    assert get_strategy("one_device") is one_device


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("parameter_server", {}, "parameter_server strategy does not work with fit.*use multi_worker_mirrored"),
        ("horovod", {}, "'horovod'; known are off, one_device, mirrored, multi_worker_mirrored, tpu"),
        ("mirrored", {"num_gpus": 99}, "num_gpus is 99, and TensorFlow finds 0 GPUs"),
        ("off", {"num_gpus": 1}, "num_gpus is 1, and TensorFlow finds 0 GPUs"),
        ("off", {"num_gpus": 4}, "num_gpus is 4, and distribution strategy off uses one: leave num_gpus out"),
        ("one_device", {"num_gpus": 4}, "num_gpus is 4, and distribution strategy one_device uses one"),
        ("tpu", {"num_gpus": 1}, "num_gpus is 1, and distribution strategy tpu uses no GPU"),
        ("multi_worker_mirrored", {}, "TF_CONFIG"),
        ("tpu", {}, "no TPU found"),
    ],
)
def test_what_cannot_be_had_is_said(name, arguments, message, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if arguments and tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has GPUs")
    with pytest.raises(ValueError, match=message):
        get_strategy(name, **arguments)


def test_a_tpu_is_found_by_its_name_and_set_up(monkeypatch):
    """With stand-ins for what TensorFlow does with a TPU."""
    tpu = mock.Mock()
    tpu.strategy.return_value.num_replicas_in_sync = 4
    monkeypatch.setattr(distribution, "_made", {})
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", tpu.find)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", tpu.connect)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", tpu.initialize)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", tpu.strategy)
    with pytest.raises(ValueError, match="^num_tpu_cores is 8, and the TPU has 4$"):
        get_strategy("tpu", num_tpu_cores=8)
    tpu.reset_mock()
    choices = {"tpu_name": "mine", "tpu_zone": "here", "gcp_project": "ours", "num_tpu_cores": 4}
    assert get_strategy("tpu", **choices) is get_strategy("tpu", **choices) is tpu.strategy.return_value
    found = tpu.find.return_value
    assert tpu.mock_calls == [
        mock.call.find(tpu="mine", zone="here", project="ours"),
        mock.call.connect(found),
        mock.call.initialize(found),
        mock.call.strategy(found),
    ]


def task(**changes):
    cluster = {"worker": ["localhost:1", "localhost:2"], "evaluator": ["localhost:3"]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0} | changes})


def test_gpus_of_a_worker_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", task())
    with pytest.raises(ValueError, match="num_gpus is 99, and TensorFlow finds"):
        get_strategy("multi_worker_mirrored", num_gpus=99)


@pytest.mark.parametrize("name, count, shown", [("off", 0, []), ("off", 1, ["a"]), ("multi_worker_mirrored", 1, ["a"])])
def test_gpus_that_are_not_wanted_are_hidden(name, count, shown, monkeypatch):
    calls = []
    for function in ("list_physical_devices", "get_visible_devices"):
        monkeypatch.setattr(tf.config, function, lambda kind: ["a", "b"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *call: calls.append(call))
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", tf.distribute.get_strategy)
    monkeypatch.setattr(distribution, "_made", {})
    monkeypatch.setenv("TF_CONFIG", task())
    get_strategy(name, num_gpus=count)
    assert calls == [(shown, "GPU")]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"index": 2}, "the task in TF_CONFIG is worker 2, and the cluster there has 2 of that kind, counted from 0"),
        ({"index": -1}, "the task in TF_CONFIG is worker -1"),
        ({"index": "first"}, "needs the environment variable TF_CONFIG .*; it is {.*first"),
        ({"type": "chief"}, "the task in TF_CONFIG is chief 0, and the cluster there has 0 of that kind"),
        ({"type": "evaluator"}, "task type in TF_CONFIG is 'evaluator'; those that train are 'chief' and 'worker'"),
    ],
)
def test_a_worker_that_the_cluster_lacks_is_refused(changes, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", task(**changes))
    with pytest.raises(ValueError, match=message):
        get_strategy("multi_worker_mirrored")


@pytest.mark.parametrize("addresses", ["localhost:1", ["localhost"], ["localhost:"]])
def test_addresses_of_workers_that_are_none_are_refused(addresses, monkeypatch):
    monkeypatch.setenv(
        "TF_CONFIG", json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}})
    )
    with pytest.raises(ValueError, match="for worker; expected a list of HOST:PORT"):
        get_strategy("multi_worker_mirrored")


def test_a_taken_port_is_said():
    with socket.create_server(("localhost", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
        cluster = {"cluster": {"worker": [address, "localhost:1"]}, "task": {"type": "worker", "index": 0}}
        code = "from tf_bert.training import distribution; distribution.get_strategy('multi_worker_mirrored')"
        command, environment = [sys.executable, "-c", code], {**os.environ, "TF_CONFIG": json.dumps(cluster)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert f"ValueError: this worker cannot listen on {address}, its address in TF_CONFIG" in done.stderr


def test_devices_are_settled_once():
    tf.constant(1.0) + 1.0
    with pytest.raises(ValueError, match="before TensorFlow runs anything"):
        set_logical_cpus(2)


def test_precision_by_name():
    for name, policy in {"bfloat16": "mixed_bfloat16", "float16": "mixed_float16", "float32": "float32"}.items():
        set_precision(name)
        assert keras.config.dtype_policy().name == policy
    with pytest.raises(ValueError, match="'float8'; known are float32"):
        set_precision("float8")


def test_flags_of_the_original_are_taken(flags):
    original = ["--use_tpu=False", "--tpu_name=tpu-1", "--tpu_zone=us-central1-f", "--gcp_project=p"]
    values = flags.parse([*original, "--num_tpu_cores=8"])
    assert strategy_from_flags(values) is tf.distribute.get_strategy()


EXAMPLES = ROOT / "examples" / "data"
GPT = ("--task=answers", "--format=jsonl", f"--dev_file={EXAMPLES}/answers_dev.jsonl", "--do_eval")


@pytest.mark.parametrize(
    "command, flags",
    [
        (run_pretraining, ("--bert_config_file=x", "--input_file=x", "--do_train", "--do_eval")),
        (run_pretraining, ("--bert_config_file=x", "--input_file=x", "--do_train", "--eval_every_steps=5")),
        (run_language_modeling, ("--config_file=x", "--input_file=x", "--do_train", "--do_eval")),
        (run_gpt, GPT),
    ],
)
def test_an_evaluation_that_workers_cannot_share_is_refused_before_training(command, flags, monkeypatch, capsys):
    strategy = mock.Mock(spec=tf.distribute.MultiWorkerMirroredStrategy, num_replicas_in_sync=2, cluster_resolver=None)
    monkeypatch.setattr(command, "strategy_from_flags", lambda flags: strategy)
    assert command.main(["--output_dir=x", "--eval_batch_size=3", *flags]) == 1
    assert "--eval_batch_size, 3, is no multiple of the number of replicas, 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command, flags",
    [
        (run_classifier, ("--task_name=csv", f"--train_file={EXAMPLES}/reviews_train.csv", "--do_train")),
        (run_ner, (f"--train_file={EXAMPLES}/entities_train.conll", "--do_train")),
        (run_squad, (f"--train_file={EXAMPLES}/squad_train.json", "--do_train")),
    ],
)
def test_the_strategy_is_made_before_a_checkpoint_is_opened(command, flags, monkeypatch):
    """TensorFlow cannot make that of several workers once a model is loaded, as from a .keras file."""
    order = []

    def open_checkpoint(*_):
        order.append("checkpoint")
        raise FileNotFoundError

    monkeypatch.setattr(finetuning_flags, "strategy_from_flags", lambda flags: order.append("strategy"))
    monkeypatch.setattr(pretrained, "open_checkpoint", open_checkpoint)
    assert command.main(["--output_dir=x", "--init_checkpoint=x.keras", *flags]) == 1
    assert order == ["strategy", "checkpoint"]


@pytest.mark.parametrize("given, expected", [([], None), (["--num_tpu_cores=8"], 8)])
def test_a_tpu_may_have_any_size_unless_the_flag_says(given, expected, flags, monkeypatch):
    asked = []
    monkeypatch.setattr(distribution, "get_strategy", lambda name, **arguments: asked.append(arguments))
    strategy_from_flags(flags.parse(["--use_tpu", *given]))
    assert asked[0]["num_tpu_cores"] == expected


def test_iterations_per_loop_counts_by_default_on_a_tpu(monkeypatch):
    model, options = MODELS["classification"](), {"log_steps": 5000, "save_checkpoints_steps": 9000}

    def steps_per_call(**more):
        recipe.compile_for(model, RunOptions(**options | more), keras.optimizers.SGD())
        return model.steps_per_execution

    assert steps_per_call() == 1 and steps_per_call(iterations_per_loop=7) == 7
    monkeypatch.setattr(recipe, "strategy_name", lambda strategy: "tpu")
    assert steps_per_call() == 1000 and steps_per_call(log_steps=20) == 20


def test_use_tpu_without_a_tpu_stops(flags):
    with pytest.raises(ValueError, match="no TPU found under the name 'nowhere.invalid'"):
        strategy_from_flags(flags.parse(["--use_tpu=True", "--tpu_name=nowhere.invalid"]))


def test_contradicting_and_refused_flags(flags):
    with pytest.raises(UsageError, match="--use_tpu=True contradicts --distribution_strategy=mirrored"):
        strategy_from_flags(flags.parse(["--use_tpu", "--distribution_strategy=mirrored"]))
    with pytest.raises(UsageError, match="--master is not accepted: .*--tpu_name=grpc://"):
        flags.parse(["--master=grpc://10.0.0.1:8470"])
    with pytest.raises(ValueError, match="parameter_server"):
        strategy_from_flags(flags.parse(["--distribution_strategy=parameter_server"]))


def test_a_filled_up_batch_changes_no_figure():
    keras.config.set_dtype_policy("float64")
    try:
        data = toy_data(21)
        found = []
        for prepare in (lambda dataset: dataset, lambda dataset: pad_last_batch(dataset, 8)):
            keras.utils.set_random_seed(2)
            model = Toy()
            model.compile("sgd")
            history = model.fit(prepare(batches(data, 8)), epochs=2, verbose=0).history
            evaluated = model.evaluate(prepare(batches(data, 8)), verbose=0, return_dict=True)
            found.append((weights(model), *history.values(), *evaluated.values()))
        for padded, plain in zip(found[1], found[0], strict=True):
            np.testing.assert_allclose(padded, plain, rtol=1e-12)
    finally:
        keras.config.set_dtype_policy("float32")


def test_filled_up_batches_have_static_shapes():
    spec = pad_last_batch(batches(toy_data(21), 8), 8).element_spec
    assert all(part.shape[0] == 8 for part in spec.values())
    whole = distribute(tf.distribute.get_strategy(), lambda size: batches(toy_data(21), size), 8)
    assert [len(batch["ids"]) for batch in whole] == [8, 8, 5]


def test_more_micro_batches_than_examples_are_refused():
    options = FineTuningOptions(train_batch_size=4, gradient_accumulation_steps=5)
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps is 5, and a batch of 4 \(train_batch_size\)"):
        FineTuning(MODELS["classification"], None, options).build()


def test_training_on_a_tpu_looks_words_up_by_a_product(monkeypatch):
    model = MODELS["classification"]()
    config = model.get_config()
    recipe.compile_for(model, RunOptions(), keras.optimizers.SGD())
    assert not model.bert.embeddings.use_one_hot_embeddings
    monkeypatch.setattr(recipe, "strategy_name", lambda strategy: "tpu")
    recipe.compile_for(model, RunOptions(), keras.optimizers.SGD())
    assert model.bert.embeddings.use_one_hot_embeddings
    assert model.get_config() == config  # what is saved does not depend on where it was trained


@pytest.mark.slow
@pytest.mark.parametrize("task, recompute", [(task, False) for task in MODELS] + [("pretraining", True)])
def test_the_whole_step_compiles_for_a_tpu(task, recompute, monkeypatch):
    """Under XLA, with static shapes and nothing that runs on the host; what only a TPU can show is not shown."""
    set_precision("float32")
    monkeypatch.setattr(recipe, "strategy_name", lambda strategy: "tpu")
    batch = {name: tf.constant(value[:8]) for name, value in task_data(task, 8).items()}
    parts = 1 if task == "vectors" else 2

    def step_of(model, jit_compile):
        options = RunOptions(gradient_accumulation_steps=parts, recompute=recompute, xla=jit_compile)
        recipe.compile_for(model, options, OPTIMIZERS["adamw"]())

        def step(*values):
            return model.train_step(dict(zip(batch, values, strict=True)))

        return tf.function(step, jit_compile=jit_compile, autograph=False)

    found = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(7)
        model = MODELS[task]()
        step_of(model, jit_compile)(*batch.values())
        found.append(weights(model))
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
    # From shapes alone: where values are known, XLA would take from them what has to be constant.
    shapes = [tf.TensorSpec.from_tensor(value) for value in batch.values()]
    code = step_of(with_dropout(model), True).experimental_get_compiler_ir(*shapes)(stage="hlo")
    assert "rng-bit-generator" in code  # dropout
    for host_work in ("custom-call", "infeed", "outfeed", "send(", "recv("):
        assert host_work not in code
    assert not re.search(r"\[[^\]]*<=", code)  # a dimension with a bound is dynamic


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_worker_ends_the_others(victim):
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    processes = []
    for index in range(2):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        processes.append(start(2, ["endless"], TF_CONFIG=config))
    for line in processes[victim].stdout:
        if "step 20" in line:
            break
    os.kill(processes[victim].pid, signal.SIGKILL)
    _, errors = processes[1 - victim].communicate(timeout=60)
    assert "ConnectionError: another worker of this job is gone" in errors, errors[-3000:]
    assert processes[1 - victim].returncode != 0


MEMORY = """
import sys
import numpy as np, tensorflow as tf
from tf_bert.configs import BertConfig
from tf_bert.models.bert import BertForPreTraining
config = BertConfig(vocab_size=100, hidden_size=128, num_hidden_layers=4, num_attention_heads=2, intermediate_size=512)
model = BertForPreTraining(config)
model.compile("sgd", gradient_accumulation_steps=int(sys.argv[1]))
rows = np.ones((int(sys.argv[2]), 128), "int32")
data = {"input_ids": rows, "masked_lm_positions": rows[:, :4], "masked_lm_ids": rows[:, :4],
        "masked_lm_weights": rows[:, :4].astype("float32"), "next_sentence_labels": rows[:, 0]}
model.fit(tf.data.Dataset.from_tensors(data).repeat(2), verbose=0)
"""


@pytest.mark.slow
def test_memory_grows_with_the_micro_batch_only(peak_kilobytes):
    small, large, accumulated = (peak_kilobytes(MEMORY, *sizes) for sizes in ((1, 4), (1, 64), (16, 64)))
    assert large - small > 500_000
    assert accumulated - small < 0.2 * (large - small)


RECOMPUTED = """
import sys
import numpy as np, tensorflow as tf
from tf_bert.configs import TransformerConfig
from tf_bert.models.transformer import Transformer
config = TransformerConfig(100, hidden_size=128, num_hidden_layers=4, num_attention_heads=2, intermediate_size=512)
model = Transformer(config)
model.compile("sgd", recompute=sys.argv[1] == "recompute")
rows = np.ones((int(sys.argv[2]), 128), "int32")
model.fit(tf.data.Dataset.from_tensors({"source_ids": rows, "target_ids": rows}).repeat(2), verbose=0)
"""


@pytest.mark.slow
def test_a_recomputed_transformer_keeps_less(peak_kilobytes):
    small, kept, recomputed = (peak_kilobytes(RECOMPUTED, *how) for how in (("", 2), ("", 48), ("recompute", 48)))
    assert kept - small > 500_000
    assert recomputed - small < 0.5 * (kept - small)
