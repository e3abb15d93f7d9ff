"""What a client may do: the broker's side of its principal."""
