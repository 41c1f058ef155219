"""TFRecord files, the messages in them, what is noted next to them, and pipelines over them."""
