"""The identity of a run: the values of its initial params, and the graphs of its problem with the data that they capture."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core import graphs
from rfho2.core.compiled import graph_function
from rfho2.core.dtensors import is_dtensor
from rfho2.core.types import Hypers, Nest
from rfho2.driver.checkpoint_store import GRAPH, digest_arrays
from rfho2.hypergradients.episodes import params_at
from rfho2.problem import Problem

EPISODES = 3  # values of a function that are compared
INDEX = tf.TensorSpec([], tf.int32)
MACHINE = ("config_proto", "executor_type")  # attributes that describe the machine instead of the function


def of_params(params: Nest | Callable[[tf.Tensor], Nest]) -> dict[str, str]:
    """Plain values that differ if the params do; for a function k -> params, also if only later values differ."""
    if not callable(params):
        return {"initial params": digest_arrays(params)}
    values = [params_at(params, k) for k in range(EPISODES)]
    return {"initial params": digest_arrays(values), f"{GRAPH}the initial params": of_function(params, INDEX)}


def of_problem(problem: Any, params: Nest, hypers: Hypers) -> dict[str, str]:
    """Hashes of the graphs of dynamics, objectives and batches, with the tensors that they capture, such as the data.

    They do not cover streams of batches, the values of variables, and data that are divided over a mesh, of which each
    process sees only a part.
    """
    if not isinstance(problem, Problem):  # a custom engine may describe its problem in another way
        return {}
    params, hypers = graphs.spec(params), graphs.spec(dict(hypers))
    dynamics, hashes = problem.dynamics, {}
    hashes["the initial state"], state = _traced(dynamics.init, params, hypers)
    if isinstance(problem.batches, Stream):
        batch = problem.batches.spec
    else:
        hashes["the training batches"], batch = _traced(problem.batch, INDEX, INDEX)
    hashes["a training step"], _ = _traced(dynamics.step, state, hypers, batch, INDEX)
    for term in problem.terms(hypers):
        name = f" '{term.name}'" if term.name else ""
        objective = lambda state, hypers, batch, term=term: term.fn(dynamics.params(state), hypers, batch)  # noqa: E731
        hashes[f"the validation batches{name}"], batch = _traced(term.batch, INDEX)
        graph, _ = _traced(objective, state, hypers, batch)
        hashes[f"the objective{name}"] = _hash(graph, term.every, *term.hypers)
    return {GRAPH + name: hashed for name, hashed in hashes.items()}


def of_function(function: Callable[..., Nest], *specs: Nest) -> str:
    """A hash of the graph of a function of tensors, with the tensors that it captures.

    Each node is hashed with the hashes of its inputs. The names, which contain counters, do not matter, nor do the order of
    the nodes and nodes on which no output depends.

    >>> plus = of_function(lambda x: x + 1.0, tf.TensorSpec([]))
    >>> plus == of_function(lambda y: y + 1.0, tf.TensorSpec([])), plus == of_function(lambda x: x + 2.0, tf.TensorSpec([]))
    (True, False)
    """
    return _traced(function, *specs)[0]


def _traced(function: Callable[..., Nest], *specs: Nest) -> tuple[str, Nest]:
    """The hash of the graph of a function, and the specs of what it returns."""
    concrete = graph_function(function).get_concrete_function(*specs)
    graph = concrete.graph.as_graph_def()
    argument_count = len(concrete.inputs) - len(concrete.captured_inputs)
    known = {_node(tensor.name): f"argument {i}" for i, tensor in enumerate(concrete.inputs)}
    for tensor, value in zip(concrete.inputs[argument_count:], concrete.captured_inputs, strict=True):
        known[_node(tensor.name)] = _hash(value.dtype.name, value.shape, _contents(value))
    hashes = _hash_nodes(graph.node, known, _Functions(graph.library.function))
    hashed = _hash(*(_hash_input(tensor.name, hashes) for tensor in concrete.outputs))
    return hashed, graphs.spec(concrete.structured_outputs)


def _contents(captured: Any) -> str:
    """A hash of a captured tensor; empty for variables and streams, and for data that are divided over a mesh."""
    if captured.dtype in (tf.resource, tf.variant) or is_dtensor(captured):
        return ""
    return _hash(*captured.numpy().ravel().tolist()) if captured.dtype == tf.string else digest_arrays(captured)


class _Functions(dict[str, str]):
    """The hashes of the functions inside a graph, such as the bodies of loops, by name."""

    def __init__(self, definitions: Iterable[Any]):
        super().__init__()
        self._definitions = {definition.signature.name: definition for definition in definitions}

    def __missing__(self, name: str) -> str:
        definition = self._definitions[name]
        known = {argument.name: f"argument {i}" for i, argument in enumerate(definition.signature.input_arg)}
        hashes = _hash_nodes(definition.node_def, known, self)
        outputs = [definition.ret[output.name] for output in definition.signature.output_arg]
        self[name] = _hash(*(_hash_input(output, hashes) for output in outputs))
        return self[name]


def _hash_nodes(nodes: Iterable[Any], known: dict[str, str], functions: _Functions) -> dict[str, str]:
    """The hash of every node by name; `known` has those of the inputs. Without recursion: graphs can be deep."""
    named = {node.name: node for node in nodes}
    hashes, waiting = dict(known), list(named)
    while waiting:
        node = named[waiting.pop()]
        inputs = [name for name in node.input if not name.startswith("^")]  # "^" marks an order, not a value
        missing = [_node(name) for name in inputs if _node(name) not in hashes]
        if missing:
            waiting += [node.name, *missing]
        elif node.name not in hashes:
            attributes = [f"{key}={_hash_attribute(node.attr[key], functions)}" for key in sorted(node.attr) if _counts(key)]
            hashes[node.name] = _hash(node.op, *attributes, *(_hash_input(name, hashes) for name in inputs))
    return hashes


def _counts(attribute: str) -> bool:
    """Whether an attribute is part of what a node computes; private ones hold counters and hints to the runtime."""
    return not attribute.startswith("_") and attribute not in MACHINE


def _hash_attribute(attribute: Any, functions: _Functions) -> str:
    called = [attribute.func, *attribute.list.func]
    if any(function.name for function in called):
        return _hash(*(functions[function.name] for function in called if function.name))
    return _hash(attribute.SerializeToString(deterministic=True))


def _hash_input(name: str, hashes: dict[str, str]) -> str:
    """The hash of an output of a node, such as "node", "node:1" or, inside a function, "node:output:0"."""
    _, _, port = name.partition(":")
    return _hash(hashes[_node(name)], port or "0")


def _node(name: str) -> str:
    return name.partition(":")[0]


def _hash(*parts: Any) -> str:
    sha = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()[:16]
