"""run_classifier_with_tfhub: a SavedModel laid out as Hub's, made with TensorFlow 1's own ops."""

import json
import math
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tf_bert import Bert, BertConfig
from tf_bert.checkpoints.hub import read_module
from tf_bert.commands import run_classifier_with_tfhub
from tf_bert.data.finetuning.label_list import noted_labels
from tf_bert.models.hub import convert_module
from tf_bert.models.pretrained import open_checkpoint
from tf_bert.tokenization import save_vocab

v1 = tf.compat.v1
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] Sun Rain is it".split()
# Neither the usual width of a head (64) nor one head: the number is to be found out.
CONFIG = BertConfig(len(WORDS), 12, 2, 3, 16, max_position_embeddings=16, type_vocab_size=2, initializer_range=0.5)


def plain_bert(values, ids, mask, segments):
    """The forward pass in TensorFlow 1's words, on variables under ``module/bert``; dropout left out."""

    def variable(name):
        return v1.get_variable(f"bert/{name}", initializer=values[f"bert/{name}"])

    def dense(x, name):
        return tf.tensordot(x, variable(f"{name}/kernel"), 1) + variable(f"{name}/bias")

    def norm(x, name):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        normed = (x - mean) / tf.sqrt(variance + 1e-12)
        return normed * variable(f"{name}/LayerNorm/gamma") + variable(f"{name}/LayerNorm/beta")

    def heads(x):
        shape = tf.shape(x)
        return tf.transpose(tf.reshape(x, [shape[0], shape[1], 3, 4]), [0, 2, 1, 3])

    length = tf.shape(ids)[1]
    x = tf.gather(variable("embeddings/word_embeddings"), ids)
    x += tf.gather(variable("embeddings/token_type_embeddings"), segments)
    x = norm(x + variable("embeddings/position_embeddings")[:length], "embeddings")
    for i in range(2):
        layer = f"encoder/layer_{i}"
        q, k, v = (heads(dense(x, f"{layer}/attention/self/{name}")) for name in ("query", "key", "value"))
        scores = tf.matmul(q, k, transpose_b=True) / math.sqrt(4)
        scores += -10000.0 * (1.0 - tf.cast(mask, tf.float32)[:, None, None, :])
        context = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
        context = tf.reshape(context, tf.shape(x))
        x = norm(x + dense(context, f"{layer}/attention/output/dense"), f"{layer}/attention/output")
        h = dense(x, f"{layer}/intermediate/dense")
        h = 0.5 * h * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        x = norm(x + dense(h, f"{layer}/output/dense"), f"{layer}/output")
    return {"sequence_output": x, "pooled_output": tf.tanh(dense(x[:, 0], "pooler/dense"))}


def signature(*sides):
    infos = ({name: v1.saved_model.build_tensor_info(tensor) for name, tensor in side.items()} for side in sides)
    return v1.saved_model.build_signature_def(*infos, "tokens")


def save_module(folder, values, vocab_file, forward=plain_bert, lower=False):
    """Writes a module as Hub did: graphs with and without the tag "train", the vocabulary an asset."""
    builder = v1.saved_model.Builder(str(folder))
    for tags in ([], ["train"]):
        with tf.Graph().as_default(), v1.Session() as session:
            names = ("input_ids", "input_mask", "segment_ids")
            inputs = [v1.placeholder(tf.int32, [None, None], name) for name in names]
            with v1.variable_scope("module"):
                outputs = forward(values, *inputs)
            asset = tf.constant(str(vocab_file))
            v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, asset)
            info = {"vocab_file": asset, "do_lower_case": tf.constant(lower)}
            signatures = {
                "tokens": signature(dict(zip(names, inputs, strict=True)), outputs),
                "tokenization_info": signature({}, info),
            }
            session.run(v1.global_variables_initializer())
            options = {"signature_def_map": signatures, "assets_collection": [asset]}
            if tags:
                builder.add_meta_graph(tags, **options)
            else:
                builder.add_meta_graph_and_variables(session, tags, **options)
    builder.save()


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    save_vocab(WORDS, folder / "vocab.txt")
    bert = Bert(CONFIG)
    values = {variable.path: np.array(variable) for variable in bert.weights}
    save_module(folder / "module", values, folder / "vocab.txt")
    return folder / "module", values


def test_a_module_becomes_a_checkpoint_that_computes_the_same(module, tmp_path):
    path, values = module
    convert_module(str(path), str(tmp_path))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config.num_attention_heads == 3 and checkpoint.config.hidden_act == "gelu"
    assert checkpoint.settings.do_lower_case is False
    assert (tmp_path / "vocab.txt").read_text().split() == WORDS
    assert set(checkpoint.reader.shapes) == set(values)
    for name, value in values.items():
        np.testing.assert_array_equal(checkpoint.reader.read(name), value, err_msg=name)


def flags(task, module, *more):
    places = [f"--data_dir={task}", f"--output_dir={task}/run", f"--bert_hub_module_handle={module}"]
    return [*places, "--task_name=csv", "--max_seq_length=8", "--train_batch_size=4", "--num_train_epochs=1", *more]


@pytest.mark.slow
def test_the_command(module, tmp_path, capsys):
    path, _ = module
    (tmp_path / "train.csv").write_text("text,label\n" + "Sun is,fair\nRain is,foul\n" * 4)
    for name in ("dev", "test"):
        shutil.copy(tmp_path / "train.csv", tmp_path / f"{name}.csv")
    (path / "bert_config.json").write_text(CONFIG.to_json_string())  # nothing is tried out
    main = run_classifier_with_tfhub.main
    assert main(flags(tmp_path, path, "--do_train", "--do_eval", "--do_predict")) == 0
    shown = capsys.readouterr().err
    assert "the first: [CLS] Sun is [SEP]" in shown and "39 variables loaded" in shown
    assert "global_step = 2" in (tmp_path / "run/eval_results.txt").read_text()
    assert np.loadtxt(tmp_path / "run/test_results.tsv").shape == (8, 2)
    assert noted_labels(tmp_path / "run")["labels"] == ["fair", "foul"]
    assert json.loads((tmp_path / "run/bert_config.json").read_text())["num_attention_heads"] == 3

    def refused(*arguments) -> str:
        capsys.readouterr()
        assert main(flags(tmp_path, *arguments)) in (1, 2)
        return capsys.readouterr().err.splitlines()[-1]

    assert "--vocab_file is not accepted here" in refused(path, "--do_eval", "--vocab_file=v")
    assert "notes do_lower_case False, and the flag says True" in refused(path, "--do_eval", "--do_lower_case")
    assert "is an address: nothing is fetched" in refused("https://tfhub.dev/google/bert/1", "--do_eval")
    assert "is no SavedModel: there is no" in refused(tmp_path / "nowhere", "--do_eval")


def test_what_is_no_bert(module, tmp_path):
    path, values = module
    vocab_file = path.parent / "vocab.txt"

    def halved(*arguments):
        return {name: value / 2 for name, value in plain_bert(*arguments).items()}

    save_module(tmp_path / "other", values, vocab_file, halved)
    (tmp_path / "other/bert_config.json").write_text(CONFIG.to_json_string())
    with pytest.raises(ValueError, match="no BERT with these variables computes the pooled_output"):
        convert_module(str(tmp_path / "other"), str(tmp_path / "out"), allow_running_module=True)
    assert not (tmp_path / "out").exists()
    model = tf.Module()
    model.weight = tf.Variable(1.0, name="weight")
    function = tf.function(lambda: {"x": 2 * model.weight}, input_signature=[])
    tf.saved_model.save(model, str(tmp_path / "module"), function)
    with pytest.raises(ValueError, match="no variables of a BERT as the original names them; it has weight"):
        convert_module(str(tmp_path / "module"), str(tmp_path / "out"))
    shutil.copytree(path, tmp_path / "damaged")
    (tmp_path / "damaged/saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(ValueError, match="saved_model.pb is damaged"):
        convert_module(str(tmp_path / "damaged"), str(tmp_path / "out"))


# --- nothing in a module is run --------------------------------------------------------------------------------------


def writing_a_file(path, forward=plain_bert):
    """A forward pass with an operation that writes a file whenever it is run."""

    def with_side_effect(*arguments):
        outputs = forward(*arguments)
        with tf.control_dependencies([tf.io.write_file(str(path), "run")]):
            return {name: tf.identity(value) for name, value in outputs.items()}

    return with_side_effect


def test_a_module_is_not_run_unless_it_is_allowed(module, tmp_path, capsys):
    _, values = module
    mark = tmp_path / "mark"
    save_module(tmp_path / "m", values, module[0].parent / "vocab.txt", writing_a_file(mark), lower=True)
    convert_module(str(tmp_path / "m"), str(tmp_path / "read"))
    assert not mark.exists()
    assert "is read and not run: its graph has 3 heads and gelu" in capsys.readouterr().err
    assert open_checkpoint(tmp_path / "read").settings.do_lower_case is True
    convert_module(str(tmp_path / "m"), str(tmp_path / "ran"), allow_running_module=True)
    assert mark.exists()
    assert "RUNNING the signature tokens" in capsys.readouterr().err
    for folder in ("read", "ran"):
        config = open_checkpoint(tmp_path / folder).config
        assert (config.num_attention_heads, config.hidden_act) == (3, "gelu")


def test_the_command_does_not_run_a_module(module, tmp_path, capsys):
    mark = tmp_path / "mark"

    def unscaled(*arguments):
        return writing_a_file(mark)(*arguments[:3], arguments[3] * 1)

    save_module(tmp_path / "m", module[1], module[0].parent / "vocab.txt", unscaled)
    (tmp_path / "train.csv").write_text("text,label\nSun is,fair\nRain is,foul\n")
    main = run_classifier_with_tfhub.main
    assert main(flags(tmp_path, tmp_path / "m", "--do_train", "--num_attention_heads=4")) == 1
    assert "num_attention_heads is 4 by --num_attention_heads, 3 by the graph; they cannot all be right" in (
        capsys.readouterr().err
    )
    assert not mark.exists()


def without_scale(values, ids, mask, segments):
    """Outputs from which nothing tells the number of heads."""
    variables = {name: v1.get_variable(name, initializer=value) for name, value in values.items()}
    x = tf.gather(variables["bert/embeddings/word_embeddings"], ids)
    x = x * tf.cast(mask, tf.float32)[..., None] + 0 * tf.cast(segments, tf.float32)[..., None]
    return {"sequence_output": x, "pooled_output": x[:, 0]}


def test_what_the_graph_does_not_say_is_asked_for(module, tmp_path):
    save_module(tmp_path / "m", module[1], module[0].parent / "vocab.txt", without_scale)
    path, out = str(tmp_path / "m"), str(tmp_path / "out")
    with pytest.raises(
        ValueError, match=r"says num_attention_heads and hidden_act, and it is not run .* --allow_running"
    ):
        convert_module(path, out)
    with pytest.raises(ValueError, match="nothing in its files says hidden_act, and it is not run"):
        convert_module(path, out, num_attention_heads=3)
    (tmp_path / "m/bert_config.json").write_text(CONFIG.to_json_string())
    convert_module(path, out)
    assert open_checkpoint(out).config.num_attention_heads == 3
    with pytest.raises(ValueError, match="num_attention_heads is 4 by --num_attention_heads, 3 by bert_config.json"):
        convert_module(path, out, num_attention_heads=4)


def test_a_configuration_that_the_graph_contradicts(module, tmp_path):
    shutil.copytree(module[0], tmp_path / "m")
    for change in ({"num_attention_heads": 4}, {"hidden_act": "relu"}):
        config = BertConfig.from_dict(CONFIG.to_dict() | change)
        (tmp_path / "m/bert_config.json").write_text(config.to_json_string())
        with pytest.raises(ValueError, match=r"by bert_config.json, .* by the graph; they cannot all be right"):
            convert_module(str(tmp_path / "m"), str(tmp_path / "out"))


def change_saved_model(folder, change):
    """Changes the program of a module."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((folder / "saved_model.pb").read_bytes())
    for graph in saved.meta_graphs:
        change(graph)
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())


@pytest.mark.parametrize("name", ["../../vocab.txt", "/etc/passwd", "link"])
def test_a_vocabulary_outside_the_module_is_refused(module, tmp_path, name):
    shutil.copytree(module[0], tmp_path / "m")
    save_vocab(WORDS, tmp_path / "vocab.txt")
    if name == "link":
        (tmp_path / "m/assets/link").symlink_to(tmp_path / "vocab.txt")

    def change(graph):
        del graph.collection_def["saved_model_assets"].any_list.value[:]
        graph.asset_file_def.add(filename=name)

    change_saved_model(tmp_path / "m", change)
    with pytest.raises(ValueError, match="names a vocabulary outside its folder, .*: refused"):
        convert_module(str(tmp_path / "m"), str(tmp_path / "out"))


def test_a_module_of_tensorflow_2(module, tmp_path, capsys):
    """Variables under keys of objects, and the forward pass and the casing in functions."""
    _, values = module
    mark = tmp_path / "mark"
    saved = tf.Module()
    saved.all = [tf.Variable(value, name=name) for name, value in values.items()]
    by_name = dict(zip(values, saved.all, strict=True))
    saved.vocab = tf.saved_model.Asset(str(module[0].parent / "vocab.txt"))
    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec, spec])
    def tokens(input_ids, input_mask, segment_ids):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(v1, "get_variable", lambda name, initializer: by_name[name])
            return writing_a_file(mark)(values, input_ids, input_mask, segment_ids)

    @tf.function(input_signature=[])
    def tokenization_info():
        return {"vocab_file": saved.vocab.asset_path, "do_lower_case": tf.constant(True)}

    signatures = {"tokens": tokens, "tokenization_info": tokenization_info}
    tf.saved_model.save(saved, str(tmp_path / "m"), signatures)
    convert_module(str(tmp_path / "m"), str(tmp_path / "out"))
    checkpoint = open_checkpoint(tmp_path / "out")
    assert (checkpoint.config.num_attention_heads, checkpoint.config.hidden_act) == (3, "gelu")
    assert checkpoint.settings.do_lower_case is True and not mark.exists()
    for name, value in values.items():
        np.testing.assert_array_equal(checkpoint.reader.read(name), value, err_msg=name)


def test_bleurt_is_taken_with_the_configuration_beside_it(data_folder, tmp_path):
    path = data_folder / "models/bleurt-tiny"
    convert_module(str(path), str(tmp_path))
    reference = json.loads((path / "reference.json").read_text())
    assert reference
    module = read_module(str(path))
    assert (module.num_attention_heads, module.hidden_act) == (2, "gelu")  # of its graph, as its bert_config.json says
    ours, theirs = (open_checkpoint(folder).reader for folder in (tmp_path, path))
    for name in ours.shapes:
        np.testing.assert_array_equal(ours.read(name), theirs.read(name), err_msg=name)
