"""A description of the HTTP interface in OpenAPI's form."""

from typing import Any

from tf_bert.version import __version__

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}


def describe(models, limits, needs_key: bool) -> dict[str, Any]:
    """Describes the interface of a server.

    Args:
        models: name -> `tf_bert.serving.models.ServedModel`.
        limits: `tf_bert.serving.app.Limits`.
        needs_key: whether requests need a key.
    """
    paths = {
        "/healthz": {"get": _operation("Whether the process runs", "text/plain", _TEXT)},
        "/readyz": {"get": _operation("Whether the models are loaded", "text/plain", _TEXT)},
        "/metrics": {"get": _operation("Figures for Prometheus", "text/plain", _TEXT)},
        "/v1/models": {"get": _operation("The models")},
    }
    for name, model in models.items():
        paths[f"/v1/models/{name}"] = {"get": _operation(f"State of {name}")}
        paths[f"/v1/models/{name}/metadata"] = {"get": _operation(f"What {name} does")}
        if model.task != "generate":
            example = {key: _TEXT for key in model.fields}
            required = [key for key in model.fields if key not in model.optional]
            instance = {"type": "object", "properties": example, "required": required}
            body = {
                "type": "object",
                "properties": {
                    "instances": {"type": "array", "maxItems": limits.max_texts, "items": {"anyOf": [_TEXT, instance]}},
                    "inputs": {"type": "object", "properties": {key: {"type": "array"} for key in model.fields}},
                },
            }
            paths[f"/v1/models/{name}:predict"] = {"post": _operation(f"Answers of {name} ({model.task})", body=body)}
    texts = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "maxItems": limits.max_texts}]}
    if any(model.task == "embed" for model in models.values()):
        body = {
            "type": "object",
            "required": ["input"],
            "properties": {"input": texts, "model": _TEXT, "encoding_format": {"enum": ["float", "base64"]}},
        }
        paths["/v1/embeddings"] = {"post": _operation("Vectors of texts, as OpenAI's", body=body)}
    if any(model.task == "generate" for model in models.values()):
        properties = {"prompt": texts, "model": _TEXT, "max_tokens": {"type": "integer", "minimum": 1}}
        properties |= {name: _NUMBER for name in ("temperature", "top_p", "seed")}
        properties |= {"stop": texts, "stream": {"type": "boolean"}}
        body = {"type": "object", "required": ["prompt"], "properties": properties}
        paths["/v1/completions"] = {"post": _operation("Continues a prompt, as OpenAI's", body=body)}
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "tf_bert", "version": __version__},
        "paths": paths,
    }
    if needs_key:
        described["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        described["security"] = [{"key": []}]
    return described


def _operation(summary: str, kind: str = "application/json", schema: Any = None, body: Any = None) -> dict[str, Any]:
    content = {kind: {"schema": schema or {"type": "object"}}}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": content}},
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        for code, what in (
            ("400", "not JSON"),
            ("401", "no valid key"),
            ("404", "no such model"),
            ("408", "the body came too slowly"),
            ("413", "too large"),
            ("422", "not what the model takes"),
            ("429", "too many requests are waiting: see Retry-After"),
        ):
            operation["responses"][code] = {"description": what}
    return operation
