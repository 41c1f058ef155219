"""Pre-training data of BERT: from a tokenized corpus to masked records, and their input pipeline."""
