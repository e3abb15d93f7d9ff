"""How copies agree: leader and follower logic, high watermark, ISR, peer link (floor 3)."""
