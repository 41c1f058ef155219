"""What is noted of a fine-tuned model: only what `note_labels` can have written is believed."""

import json

import pytest

from tf_bert.data.finetuning.label_list import noted_labels

GOOD = {"kind": "single", "labels": ["a", "b"], "max_seq_length": 9, "version_2_with_negative": False}


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"kind": "singel"}, "kind is 'singel', expected one of single, multi"),
        ({"labels": "ab"}, "labels are 'ab', expected a list of texts"),
        ({"labels": [1]}, r"labels are \[1\], expected a list of texts"),
        ({"max_seq_length": True}, "max_seq_length is True, expected a whole number from 1"),
        ({"max_seq_length": 0}, "max_seq_length is 0, expected a whole number from 1"),
        ({"version_2_with_negative": "no"}, "version_2_with_negative is 'no', expected true or false"),
    ],
)
def test_values_of_other_kinds(tmp_path, changes, said):
    path = tmp_path / "label_list.json"
    path.write_text(json.dumps(GOOD))
    assert noted_labels(tmp_path) == GOOD | {"where": str(tmp_path)}
    path.write_text(json.dumps(GOOD | changes))
    with pytest.raises(ValueError, match=f"^{path} is damaged: {said}"):
        noted_labels(tmp_path)


@pytest.mark.parametrize("text, said", [("{", "not JSON"), ("[]", "found a list"), ('{"labels": []}', "kind is None")])
def test_files_of_something_else(tmp_path, text, said):
    (tmp_path / "label_list.json").write_text(text)
    with pytest.raises(ValueError, match=f"label_list.json is damaged: {said}.*say the labels by --labels"):
        noted_labels(tmp_path)
