"""Models written for serving: SavedModel, LiteRT and ONNX."""
