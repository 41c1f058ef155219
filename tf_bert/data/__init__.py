"""Data: text in, TFRecords and tf.data pipelines out; one room a task."""
