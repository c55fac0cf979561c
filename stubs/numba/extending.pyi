"""What type checkers know of the decorators of `numba.extending`."""

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]: ...
def overload(function: object, **options: Any) -> Callable[[_F], _F]: ...
