"""`downrange run module:app`: an app as a process, until a signal comes."""

import argparse
import importlib
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

from downrange.app.application import App
from downrange.app.process import StartError, log_to_stderr, run_service
from downrange.app.tls_choice import tls_of_environment
from downrange.client.errors import RocketMQError

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("app", metavar="MODULE:APP", help="where the App is, such as shop.main:app")
    parser.add_argument("-n", "--namesrv", metavar="ADDRESS", help="instead of the app's own")


def run(arguments: argparse.Namespace) -> int:
    """Run the handlers until a signal comes."""
    log_to_stderr()
    try:
        app = load_app(arguments.app)
        if arguments.namesrv is not None:
            app.settings = replace(app.settings, name_servers=arguments.namesrv)
        choice = tls_of_environment(os.environ)
        if choice is not None:
            tls = choice.applied(app.settings.tls)
            app.settings = replace(app.settings, use_tls=tls is not None, tls=tls)
    except (StartError, RocketMQError, ValueError) as error:
        _log.critical("cannot start: %s", error)
        return 1
    return run_service(lambda _on_failure: _AppService(app))


class _AppService:
    """An app as a process sees it: what goes wrong at the start is one line."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def start(self) -> str:
        try:
            return await self._app.start()
        except RocketMQError as error:
            raise StartError(str(error)) from error

    async def stop(self) -> None:
        await self._app.stop()


def load_app(place: str) -> App:
    """The app at module:name, with the current folder to import from; `StartError` says why not."""
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise StartError(f"{place!r} names no app; write module:name, such as shop.main:app")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise StartError(
                f"there is no module {error.name!r} in {folder} nor installed"
            ) from None
        raise
    found: object = getattr(module, name, None)
    if not isinstance(found, App):
        raise StartError(
            f"{name!r} in module {module_name!r} is "
            + ("not there" if found is None else f"a {type(found).__name__}, not an App")
        )
    return found
