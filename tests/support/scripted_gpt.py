"""A GPT that writes a given text whatever it reads, so that what ends an output can be told by hand."""

import numpy as np

from tf_bert.configs import GPTConfig
from tf_bert.models.gpt import GPT


def scripted_gpt(tokenizer, text: str, first: int, positions: int = 64) -> GPT:
    """A GPT whose token after position ``first`` + i is the i-th of ``text``, then the end token.

    Its blocks add nothing, each position is a direction of its own, and a token points to the positions after which it
    is written.
    """
    sizes = {"hidden_size": positions, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
    end_id = tokenizer.vocab_size if tokenizer.end_of_text_id is None else tokenizer.end_of_text_id
    size = max(tokenizer.vocab_size, end_id + 1)
    model = GPT(GPTConfig(size, **sizes, max_position_embeddings=positions, pre_norm=True, end_id=end_id))
    for variable in model.weights:
        variable.assign(np.ones(variable.shape) if variable.path.endswith("gamma") else np.zeros(variable.shape))
    script = [*tokenizer.tokenize_to_ids(text), *[end_id] * positions]
    table = np.zeros((size, positions), "float32")
    for place, token in zip(range(first, positions), script, strict=False):
        table[token, place] = 1.0
    model.embedding.table.assign(table)
    model.embedding.position_table.assign(30.0 * np.eye(positions, dtype="float32"))
    return model
