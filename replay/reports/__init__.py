"""Reports of a run for readers elsewhere: a browser (``html``), a build server (``junit``); and a session's two sides,
step by step (``align``)."""
