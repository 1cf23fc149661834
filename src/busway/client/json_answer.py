"""Answers of the management routes that are JSON: an object, or a list of objects."""

import json

from busway.client.errors import Refused

Json = dict[str, object]


def object_of(answer: bytes) -> Json:
    loaded = _loaded(answer)
    if not isinstance(loaded, dict):
        raise Refused("The server answered with JSON of another shape than an object.")
    return loaded


def objects_of(answer: bytes) -> list[Json]:
    loaded = _loaded(answer)
    if not isinstance(loaded, list) or not all(isinstance(item, dict) for item in loaded):
        raise Refused("The server answered with JSON of another shape than a list of objects.")
    return loaded


def _loaded(answer: bytes) -> object:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise Refused("The server answered with something that is not JSON.") from error
