"""`downrange pipeline`: runs, checks and lists pipeline files; the work is done by Spark."""

import argparse
import logging
import os
from pathlib import Path

from downrange.app.process import log_to_stderr
from downrange.spark.pipelines.process import check_file, list_folder, run_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True)
    runs = actions.add_parser("run", help="run a pipeline; it goes on where it stopped")
    runs.add_argument("file", type=Path, metavar="FILE", help="a pipeline file (TOML)")
    runs.add_argument("--once", action="store_true", help="take what is there now, then end")
    runs.add_argument(
        "--dry-run", action="store_true", help="print what a replay or resend would send"
    )
    checks = actions.add_parser("check", help="check a file without running it")
    checks.add_argument("file", type=Path, metavar="FILE", help="a pipeline file (TOML)")
    lists = actions.add_parser("list", help="list the pipeline files of a folder")
    lists.add_argument("folder", type=Path, metavar="FOLDER", nargs="?", default=Path())


def run(arguments: argparse.Namespace) -> int:
    """Do what the action says; returns the exit code."""
    log_to_stderr(logging.WARNING)
    if arguments.action == "list":
        return list_folder(arguments.folder, os.environ)
    if arguments.action == "check":
        return check_file(arguments.file, os.environ)
    return run_file(arguments.file, os.environ, once=arguments.once, dry_run=arguments.dry_run)
