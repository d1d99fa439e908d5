"""What runs in a peer's Python: a worker and its adapters. It imports nothing of ours but its own siblings."""
