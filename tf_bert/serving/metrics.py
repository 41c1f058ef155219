"""Counters of a server, in the format of Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Counters of requests, and those of the batchers of all models.

    Args:
        models: name -> `tf_bert.serving.models.ServedModel`.

    Attributes:
        registry: for ``prometheus_client.generate_latest``.
    """

    def __init__(self, models):
        self.models, self.registry = models, CollectorRegistry()
        of = {"registry": self.registry}
        self._requests = Counter("tf_bert_requests", "Requests answered", ["model", "code"], **of)
        self._seconds = Histogram(
            "tf_bert_request_seconds", "From a request to its answer", ["model"], buckets=BUCKETS, **of
        )
        self.registry.register(self)

    def count(self, model: str, code: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(model, str(code)).inc()
        self._seconds.labels(model).observe(seconds)

    def collect(self):
        """Yields the figures of the batchers as they are now."""
        waiting = GaugeMetricFamily("tf_bert_waiting_sequences", "Sequences in the queue", labels=["model"])
        totals = {
            name: CounterMetricFamily(f"tf_bert_{name}", text, labels=["model"])
            for name, text in (
                ("sequences", "Sequences computed"),
                ("batches", "Batches computed"),
                ("tokens", "Tokens computed"),
                ("padding", "Positions of batches that held no token"),
                ("failed", "Sequences whose batch raised an error"),
                ("seconds", "Time in the model"),
            )
        }
        for name, model in self.models.items():
            if model.task == "generate":
                continue
            waiting.add_metric([name], len(model.batcher))
            for figure, family in totals.items():
                family.add_metric([name], getattr(model.batcher.statistics, figure))
        return [waiting, *totals.values()]
