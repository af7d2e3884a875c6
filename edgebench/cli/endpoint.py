"""Options of `edgebench run` for the engine `api`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgebench.endpoint import KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = (
    click.option("--base-url", metavar="URL", help="api: where the model answers, such as http://127.0.0.1:8080/v1."),
    click.option("--model", metavar="NAME", help="api: the model, as the server names it."),
    click.option(
        "--key-env",
        metavar="VARIABLE",
        help=f"api: the environment variable that holds the key; {KEY_VARIABLE} by default. It is never stored.",
    ),
    click.option("--image", metavar="png|jpeg:Q", help="api: how pictures are sent; png by default."),
    click.option("--max-side", metavar="N", help="api: pictures with a longer side are made smaller to it."),
    click.option("--at-once", metavar="N", help="api: so many requests under way at once; 1 by default."),
    click.option("--timeout", metavar="SECONDS", help="api: of one request; 120 by default."),
    click.option(
        "--retries", metavar="N", help="api: tries after 429, 5xx, a timeout or a damaged answer; 8 by default."
    ),
    click.option(
        "--price", metavar="READ:WRITTEN", help="api: prices of a million tokens, for the cost, such as 2.5:10."
    ),
)
NAMES = ("base_url", "model", "key_env", "image", "max_side", "at_once", "timeout", "retries", "price")


def endpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def taken_from(options: dict[str, Any]) -> dict[str, str]:
    """Those that were given, removed from `options`."""
    found = {name: options.pop(name) for name in NAMES}
    return {name: value for name, value in found.items() if value is not None}
