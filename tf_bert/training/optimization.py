"""The former home of `tf_bert.trainer.optimization`, which earlier READMEs named."""

from tf_bert.trainer.optimization import AdamWeightDecay, AdamWeightDecayOptimizer, Lamb, create_optimizer  # noqa: F401
