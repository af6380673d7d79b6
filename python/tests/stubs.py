"""The names in `_native.pyi` are those of the compiled module, and of its classes; `__init__.py` adds the methods for objects."""

import ast
import pathlib

import earlybird
from earlybird import _native, _objects

stub = pathlib.Path(earlybird.__file__).with_name("_native.pyi")
tree = ast.parse(stub.read_text())


def declared(body):
    names = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def public(names):
    return {name for name in names if not name.startswith("_")}


extra, missing = set(), set()
module = {name for name in declared(tree.body)}
extra |= public(module) - set(dir(_native)) - {"InPlace", "Buffer", "Tensor"}
missing |= public(dir(_native)) - module
for node in tree.body:
    if isinstance(node, ast.ClassDef) and hasattr(_native, node.name):
        there = public(vars(getattr(_native, node.name)))
        extra |= {f"{node.name}.{name}" for name in public(declared(node.body)) - there}
        missing |= {f"{node.name}.{name}" for name in there - declared(node.body)}
assert not extra and not missing, f"only in the stub: {sorted(extra)}; only in the module: {sorted(missing)}"
assert {method.__name__ for method in _objects.METHODS} <= public(vars(_native.Communicator))
assert len(public(vars(_native.Communicator))) > 40
print("names agree")
