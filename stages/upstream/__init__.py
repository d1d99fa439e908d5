"""Other servers' responses: cut into frames, relayed to a client, read for what they mean and for what the model wrote.

    reads ─FrameSplitter─▶ frames (track upstream) ─RELAY───▶ frames for the client (track served)
                              │                     ─DECODE──▶ what the upstream took it for (track upstream, semantic)
                              └─────────────────────  INPUTS──▶ what the model wrote (track input)

All three stages take the frames in order, and then one last event: ``End`` where the body came to its end, an
``ErrorInput`` where it did not, an ``AbortInput`` where the client left.
"""
