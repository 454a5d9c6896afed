"""Pipelines on Spark's Structured Streaming: a short TOML file says what comes from where.

`downrange pipeline run FILE` runs one; `run_pipeline` in `runner` does it in a program.
"""
