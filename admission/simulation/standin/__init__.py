"""An OpenAI-compatible server over the engine model in real time: streams, vLLM's metrics and spans, faults on demand."""
