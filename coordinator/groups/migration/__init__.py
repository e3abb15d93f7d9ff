"""Groups that change between the classic and the consumer protocol, as pure functions."""
