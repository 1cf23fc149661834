"""What filters see of a message and what actions may change (T-2): its properties, never its body.

The broker implements these over its message and decodes lazily; a property asked for twice should be decoded once.
Nothing here raises. Classes and no protocols, because mypyc calls the methods of classes directly.
"""

from mypy_extensions import mypyc_attr

from busway.rules.values import Missing, Value


def folded(name: str) -> str:
    """The form in which names of properties are equal (T-22, M-30). Everybody folds with this one."""
    return name.casefold()


@mypyc_attr(allow_interpreted_subclasses=True)
class Subject:
    __slots__ = ()

    def user(self, folded_name: str) -> Value | Missing:
        """The user property under this name, MISSING without one. Present with null is None (T-32)."""
        raise NotImplementedError

    def system(self, name: str) -> Value:
        """The system property under its canonical name (`system_properties`), None when the message has none."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class ChangeableSubject(Subject):
    __slots__ = ()

    def set_user(self, name: str, value: Value) -> None:
        """Creates the property under the name as written, or replaces the one whose folded name is equal."""
        raise NotImplementedError

    def remove_user(self, folded_name: str) -> None:
        """A missing property is no error (T-52)."""
        raise NotImplementedError

    def set_system(self, name: str, value: Value) -> None:
        """`name` is one of `system_properties.SETTABLE`, `value` is of its type, or None to take it away."""
        raise NotImplementedError
