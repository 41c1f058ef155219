"""Configurations: the original's JSON in and out, and clear errors."""

import dataclasses
import json
import warnings

import pytest

import tf_bert
from tf_bert.configs import BertConfig

PUBLISHED = {  # bert_config.json of Google's multi_cased_L-12_H-768_A-12: keys in the order of its file
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 119547,
}


def write(tmp_path, json_object):
    path = tmp_path / "bert_config.json"
    path.write_text(json_object if isinstance(json_object, str) else json.dumps(json_object), encoding="utf-8")
    return path


def test_positional_order_and_defaults_are_the_original_s():
    config = BertConfig(99, 32, 5, 4, 37, "relu", 0.2, 0.3, 64, 3, 0.01)
    assert config.to_dict() == {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "hidden_act": "relu",
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.3,
        "max_position_embeddings": 64,
        "type_vocab_size": 3,
        "initializer_range": 0.01,
    }
    assert BertConfig(7).to_dict() == {
        "vocab_size": 7,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 16,
        "initializer_range": 0.02,
    }


def test_published_file_is_written_again_byte_for_byte(tmp_path):
    text = json.dumps(PUBLISHED, indent=2, sort_keys=True) + "\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = BertConfig.from_json_file(write(tmp_path, text))
    assert (config.vocab_size, config.type_vocab_size) == (119547, 2)
    assert config.extra["pooler_type"] == "first_token_transform"
    assert config.to_json_string() == text


def test_files_of_real_models_come_back(golden, data_folder):
    paths = [*golden.glob("*/bert_config*.json"), *golden.glob("hf/bert_*/config.json")]
    paths += [data_folder / "models/bleurt-tiny/bert_config.json", data_folder / "models/splade-tiny/config.json"]
    assert len(paths) >= 8
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            config = BertConfig.from_json_file(path)
        written = json.loads(config.to_json_string())
        assert written.items() >= json.loads(path.read_text(encoding="utf-8")).items(), path
        assert BertConfig.from_dict(written) == config


def test_config_is_a_frozen_value():
    config = BertConfig.from_dict(PUBLISHED)
    assert config == BertConfig.from_dict(PUBLISHED)
    assert dataclasses.replace(config, hidden_size=384).extra == config.extra
    assert len({config, BertConfig.from_dict(PUBLISHED)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.hidden_size = 1
    config.to_dict()["pooler_type"] = "changed"
    assert config.extra["pooler_type"] == "first_token_transform"


def test_misspelt_key_is_named_with_the_nearest():
    with pytest.warns(UserWarning, match="'num_hiden_layers' meant to be 'num_hidden_layers', which stays 12"):
        config = BertConfig.from_dict({"vocab_size": 30, "num_hiden_layers": 2})
    assert config.num_hidden_layers == 12
    assert config.to_dict()["num_hiden_layers"] == 2


@pytest.mark.parametrize(
    "change, message",
    [
        ({"hidden_size": 770}, "hidden_size 770 is not a multiple of num_attention_heads 12"),
        ({"hidden_size": "768"}, r"hidden_size must be an integer, not '768' \(str\)"),
        ({"hidden_size": 768.0}, r"hidden_size must be an integer, not 768.0 \(float\)"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be an integer, not True"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1, not 0"),
        ({"vocab_size": None}, "vocab_size must be an integer, not None"),
        ({"hidden_dropout_prob": "0.1"}, "hidden_dropout_prob must be a number"),
        ({"attention_probs_dropout_prob": 1.0}, r"attention_probs_dropout_prob must lie in \[0, 1\), not 1.0"),
    ],
)
def test_unusable_values_are_refused_by_name(tmp_path, change, message):
    path = write(tmp_path, PUBLISHED | change)
    with pytest.raises(ValueError, match=message) as error:
        BertConfig.from_json_file(path)
    assert str(path) in str(error.value)


def test_the_heads_are_looked_at_where_a_model_is_made():
    config = BertConfig(vocab_size=99, hidden_size=37)
    assert json.loads(config.to_json_string())["hidden_size"] == 37
    assert BertConfig.from_dict(config.to_dict()) == config
    for model in (tf_bert.Bert, tf_bert.BertForPreTraining, tf_bert.BertClassifier):
        with pytest.raises(ValueError, match="^BertConfig: hidden_size 37 is not a multiple of num_attention_heads 12"):
            model(config)


def test_missing_vocab_size_and_broken_files(tmp_path):
    with pytest.raises(ValueError, match="vocab_size is missing; found hidden_size"):
        BertConfig.from_dict({"hidden_size": 768})
    with pytest.raises(ValueError, match="bert_config.json: not JSON: Expecting .* line 1"):
        BertConfig.from_json_file(write(tmp_path, '{"vocab_size": 30,}'))
    with pytest.raises(ValueError, match="found a list, expected a JSON object"):
        BertConfig.from_json_file(write(tmp_path, [1]))
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        BertConfig.from_json_file(tmp_path / "nowhere.json")
