"""A real Ollama with a model made on the spot: random weights, real engine."""
