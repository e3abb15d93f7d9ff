"""Consumer groups of the newer protocol (KIP-848), as pure functions and values."""
