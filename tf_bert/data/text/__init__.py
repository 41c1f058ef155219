"""Text in: lines, documents, sentences, tables and the corpus that is on every machine."""
