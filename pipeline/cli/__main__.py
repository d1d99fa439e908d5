"""``python -m pipeline.cli``: the command, where it is not on the path."""

from pipeline.cli import main

if __name__ == "__main__":  # a worker process imports this again under another name
    main()
