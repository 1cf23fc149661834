"""A message as rules see it, for tests: two dictionaries, and no cleverness that could share a fault with the
broker's own subject."""

from uuid import UUID

from busway.rules.subject import MISSING, ChangeableSubject, Missing, Value, folded

#: What `newid()` gives in tests that do not ask for another.
AN_ID = UUID("12345678-1234-5678-1234-567812345678")


def an_id() -> UUID:
    return AN_ID


class PropertyBag(ChangeableSubject):
    """`user` properties under their names as sent, `system` properties under canonical names."""

    def __init__(self, user: dict[str, Value] | None = None, system: dict[str, Value] | None = None) -> None:
        self.user_properties: dict[str, Value] = dict(user or {})
        self.system_properties: dict[str, Value] = dict(system or {})

    def user(self, folded_name: str) -> Value | Missing:
        name = self._name(folded_name)
        return MISSING if name is None else self.user_properties[name]

    def system(self, name: str) -> Value:
        return self.system_properties.get(name)

    def set_user(self, name: str, value: Value) -> None:
        self.user_properties[self._name(folded(name)) or name] = value

    def remove_user(self, folded_name: str) -> None:
        name = self._name(folded_name)
        if name is not None:
            del self.user_properties[name]

    def set_system(self, name: str, value: Value) -> None:
        if value is None:
            self.system_properties.pop(name, None)
        else:
            self.system_properties[name] = value

    def _name(self, folded_name: str) -> str | None:
        return next((name for name in self.user_properties if folded(name) == folded_name), None)
