"""The parser under test. In a repository of your own it is the one that you change; ``vllm:qwen3+hermes`` names one of
vLLM's (docs/peers.md)."""

from stages import catalog

Parser = catalog.parser("hermes")
