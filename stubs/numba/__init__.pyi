"""What type checkers know of numba: `njit` keeps the types of what it compiles."""

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_R_co = TypeVar("_R_co", covariant=True)

class _Compiled(Protocol[_P, _R_co]):
    @property
    def py_func(self) -> Callable[_P, _R_co]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...

def njit(**options: Any) -> Callable[[Callable[_P, _R_co]], _Compiled[_P, _R_co]]: ...
def __getattr__(name: str) -> Any: ...
