"""`busway serve`."""

import errno
from pathlib import Path
from typing import Annotated

import typer

from busway.cli.failures import CommandFailed, WrongCall
from busway.cli.output import example
from busway.serve_options import ServeOptions, WrongOptions, default_data_directory

_EXAMPLE = "busway serve --data ./bus --port 0 --ready-file ./ready.json"


def register(app: typer.Typer) -> None:
    app.command("serve", epilog=example(_EXAMPLE))(start)


def _file(name: str, meaning: str) -> object:
    return typer.Option(name, metavar="FILE", help=meaning)


def start(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", envvar="BUSWAY_DATA", help="Where everything is kept."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.", show_default=True)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="NUMBER", help="0 takes a free one.", show_default=True)
    ] = 5672,
    config: Annotated[
        Path | None, _file("--config", "Entities to create: an emulator's Config.json.")
    ] = None,
    stores: Annotated[
        int | None, typer.Option("--stores", metavar="NUMBER", help="SQLite files in the data directory.")
    ] = None,
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="URL", help="A store's address; may be repeated.")
    ] = None,
    dev_key: Annotated[
        bool, typer.Option("--dev-key", help="Accept the emulator's well-known key SAS_KEY_VALUE too.")
    ] = False,
    ready_file: Annotated[
        Path | None, _file("--ready-file", "Written when connections are accepted.")
    ] = None,
    tls_cert: Annotated[Path | None, _file("--tls-cert", "The certificate to show, with its chain.")] = None,
    tls_key: Annotated[Path | None, _file("--tls-key", "The certificate's private key.")] = None,
    key_file: Annotated[Path | None, _file("--key-file", "Holds the key of the root rule.")] = None,
    tls_port: Annotated[
        int | None, typer.Option("--tls-port", metavar="NUMBER", help="AMQP over TLS; 5671 off loopback.")
    ] = None,
    https_port: Annotated[
        int | None,
        typer.Option("--https-port", metavar="NUMBER", help="HTTPS and WebSocket; 443 off loopback."),
    ] = None,
) -> None:
    """Run the bus until it is told to stop (SIGTERM or Ctrl-C)."""
    options = ServeOptions(
        data=data or default_data_directory(),
        host=host,
        port=port,
        config=config,
        stores=stores,
        store_urls=tuple(store or ()),
        dev_key=dev_key,
        ready_file=ready_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        key_file=key_file,
        tls_port=tls_port,
        https_port=https_port,
    )
    try:
        options.check()
    except WrongOptions as error:
        raise WrongCall(str(error)) from error
    _run(options)


def _run(options: ServeOptions) -> None:
    """What keeps a server from starting, as a sentence."""
    from busway.broker.errors import BrokerError
    from busway.config_node import ConfigError
    from busway.gateway.certificates import CertificateError
    from busway.server import ServerFailed, serve
    from busway.store.contract import StoreError

    try:
        serve(options)
    except (ServerFailed, ConfigError, CertificateError, StoreError, BrokerError) as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandFailed(
                f"A port that the server needs on {options.host} is in use already: stop the other program, or "
                "choose another port (--port 0 takes a free one)."
            ) from error
        raise
