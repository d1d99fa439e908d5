"""A Hugging Face causal language model on this machine's CPU. The only package that imports torch.

One sequence per forward pass: a request's numbers do not depend on what runs beside it. Logprobs are the log-softmax of
the raw logits, before penalties, bias, temperature and truncation.
"""

from pipeline.engines.hf.engine import HfEngine

__all__ = ["HfEngine"]
