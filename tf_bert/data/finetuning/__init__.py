"""Data of single tasks: files to examples, examples to features, predictions to files and scores."""
