"""vLLM servers that sample for a language policy: `engine.kind = "vllm"`."""
