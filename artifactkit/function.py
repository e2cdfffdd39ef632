"""Level 3: does the artifact compute what its source computes, on this device? (DESIGN section 6)

The reference is the library that defines the model, in float64. How far its own float32 is from that is the noise
floor; what the artifact is off by is judged as a multiple of it. An artifact of other numbers (quantised, or cast) gets
two answers. *Fidelity*: against the reference on the artifact's own numbers, with the source's config, so that no fault
of structure hides behind them. *Loss*: against the source's numbers, always shown, judged by ``--max-kl`` alone.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import ggml, mlx_route, registry, samples, translate
from .artifact import KeyValue, Weights
from .errors import ArtifactkitError, DeviceAbsent, RouteRefused, UsageError
from .opening import Opened
from .passes import dequantize as dequantize_pass
from .placing import Progress, place
from .report import Check, Report
from .route import ConvertOptions, plan
from .run import execute
from .types import Device, Loadable, Runner, RunOptions, WriteOptions
from .verify import inputs as made_inputs
from .verify.metrics import Figures, text_of

if TYPE_CHECKING:
    import numpy as np

FLOOR = 10.0  # the verdict is this multiple of the noise floor
# And at least this, by the greatest magnitude of an output (or by 1): what another order of summation may do in
# float32, and what tables and other forms of GELU do.
# ggml looks GELU up in a table of f16: 1.03e-3 was met with in seven layers.
LEAST, LEAST_GELU = 2e-5, 2e-3
ACTIVATIONS = 0.02  # NMSE: the most that a runtime's quantised activations may be off by in an artifact of blocks
LOGITS = "logits"
VOCABULARY = "tokenizer.ggml.model"


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """What the user says about level 3. ``seconds`` is the budget: cases that it does not reach are told."""

    devices: tuple[str, ...]
    inputs: str | None = None
    atol: float | None = None
    rtol: float | None = None
    max_kl: float | None = None
    seconds: float = 600.0
    threads: int = 1


@dataclass(slots=True)
class _Reference:
    """Outputs of the reference for each case, in float64, and the greatest distance of its own float32 from them."""

    outputs: list[Mapping[str, np.ndarray]] = field(default_factory=list)
    floor: dict[str, float] = field(default_factory=dict)
    greatest: dict[str, float] = field(default_factory=dict)


def parse_device(text: str) -> Device:
    """``cpu``, ``cuda:0``, ``llamacpp@cpu``, ``onnxruntime/tensorrt@cuda:0``. UsageError for anything else."""
    runtime, at, name = text.strip().rpartition("@")
    if not name or (at and not runtime):
        raise UsageError("a device without a name", found=text, hint="cpu, cuda:0, metal, llamacpp/defaults@cpu")
    named, _, provider = runtime.partition("/")
    if named and named not in registry.runners():
        raise UsageError(f"no runtime is called {named!r}", expected=", ".join(registry.runners()), found=text)
    return Device(name, named or None, provider or None)


def verify(made: Opened, source: Opened, options: FunctionOptions, report: Report) -> None:
    """Add the checks of level 3 on each device to ``report``. What could not run is ``not-verified``, and why."""
    try:
        run = _Run(made, source, options)
    except ArtifactkitError as error:
        for name in options.devices:
            report.add(Check("function", "function", "not-verified", _said(error), device=name))
        return
    for name in options.devices:
        try:
            run.on(parse_device(name), name, report)
        except UsageError:
            raise
        except DeviceAbsent as error:
            report.add(Check("function", "device", "not-verified", _said(error), device=name))
        except ArtifactkitError as error:
            report.add(Check("function", "run", "failed", _said(error), device=name))


def _said(error: ArtifactkitError) -> str:
    parts = [error.what, f"expected {error.expected}" if error.expected else "", f"found {error.found}" if error.found
             else "", error.hint or ""]  # fmt: skip
    return "; ".join(part for part in parts if part)


class _Run:
    """One artifact beside one source: the reference is computed once, whatever the number of devices."""

    def __init__(self, made: Opened, source: Opened, options: FunctionOptions) -> None:
        self.made, self.source, self.options = made, source, options
        self.config, self.weights = _checkpoint(source)
        self.end = time.monotonic() + options.seconds
        arch = _family(self.config)
        self.gelu = arch is not None and (arch.gelu or (arch.mlx is not None and arch.mlx.gelu))
        causal = arch is None or not arch.encoder
        folder = source.given if os.path.isdir(source.given) else os.path.dirname(source.given)
        self.cases = (
            samples.given(options.inputs, folder) if options.inputs else made_inputs.made(self.config, causal)
        )  # fmt: skip
        self.own = _own(made, self.weights)
        self._references: dict[bool, _Reference] = {}

    def on(self, device: Device, name: str, report: Report) -> None:
        """The checks on one device."""
        runner = _runner(self.made, device)
        fidelity = self.reference(own=self.own is not None)
        with tempfile.TemporaryDirectory(prefix="artifactkit-") as folder:
            path = self._loadable(folder)
            twin = self._twin(folder)
            strict = runner.exact if device.provider is not None else None
            exactly = replace(device, provider=strict) if strict else device
            if twin is not None or exactly != device:
                # Structure first: all numbers as f32, computed as exactly as the runtime can.
                exact = self.outputs(runner, twin or path, exactly)
                self._judge(report, "structure", fidelity, exact, name)
                found = self.outputs(runner, path, device)
                self._activations(report, exact, found, name)
            else:
                found = self.outputs(runner, path, device)
                self._judge(report, "fidelity" if self.own is not None else "outputs", fidelity, found, name)
        self._ran(report, found, name, runner)
        if self.own is not None:
            self._loss(report, self.reference(own=False), found, name)
        elif self.options.max_kl is not None:
            self._loss(report, fidelity, found, name)

    def reference(self, own: bool) -> _Reference:
        """The reference on the artifact's own numbers or on the source's, with the source's config."""
        if own not in self._references:
            weights = self.own if own else self.weights
            assert weights is not None
            self._references[own] = self._compute(weights)
        return self._references[own]

    def _compute(self, weights: Weights) -> _Reference:
        import numpy as np

        torch = registry.runners()["torch"]
        what, found = Loadable(self.source.given, weights, self.config), _Reference()
        for precision in ("float64", "float32"):
            options = RunOptions(precision, self.options.threads, self.options.seconds)
            session = torch.load(what, Device("cpu"), options)
            try:
                for number, case in enumerate(self.cases):
                    outputs = session.run(case.inputs, case.pieces)
                    if precision == "float64":
                        found.outputs.append(outputs)
                        continue
                    for name, value in outputs.items():
                        wide, mask = found.outputs[number][name][case.mask], case.mask
                        apart = float(np.abs(wide - value[mask].astype(np.float64)).max(initial=0.0))
                        found.floor[name] = max(found.floor.get(name, 0.0), apart)
                        most = float(np.abs(wide).max(initial=0.0))
                        found.greatest[name] = max(found.greatest.get(name, 0.0), most)
            finally:
                session.close()
        return found

    def outputs(self, runner: Runner, path: str, device: Device) -> _Outputs:
        """What the artifact at ``path`` computes for each case, as far as the budget reaches."""
        options = RunOptions("float32", self.options.threads, max(1.0, self.end - time.monotonic()))
        what = Loadable(path, self.made.weights, self._own_config())
        session = runner.load(what, device, options)
        found = _Outputs()
        try:
            for case in self.cases:
                if time.monotonic() > self.end:
                    found.dropped.append(case.name)
                    continue
                try:
                    found.by_case[case.name] = session.run(case.inputs, case.pieces)
                except UsageError as error:  # this runtime has no way to be asked so
                    found.dropped.append(f"{case.name} ({error.what})")
            found.facts = dict(session.facts)
        finally:
            session.close()
        return found

    def _own_config(self) -> Mapping[str, object] | None:
        read = translate.read_config(self.made.weights.companions)
        return None if read is None else read[0]

    def _twin(self, folder: str) -> str | None:
        """The artifact with all of its numbers as f32, where its runtime computes in less with what it holds."""
        narrow = any(t.dtype.name != "f32" and t.dtype.cls == "float" for t in self.made.weights)
        if self.made.format.name not in ("gguf", "mlx") or not narrow:
            return None
        path = os.path.join(folder, "twin.gguf" if self.made.format.name == "gguf" else "twin")
        options = ConvertOptions(
            target_format=self.made.format.name, dtype=ggml.F32, verify=False, statement=False, summary=False
        )
        execute(plan(self._loadable(folder), path, options), options)
        return path

    def _loadable(self, folder: str) -> str:
        """The artifact, or a copy that says that it has no vocabulary: llama.cpp asks for one or the other."""
        weights = self.made.weights
        if self.made.format.name != "gguf" or any(pair.key == VOCABULARY for pair in weights.keyvalues):
            return self.made.given
        path = os.path.join(folder, "artifact.gguf")
        if not os.path.exists(path):
            told = replace(weights, keyvalues=(*weights.keyvalues, KeyValue(VOCABULARY, "string", "no_vocab")))
            write = self.made.format.write
            assert write is not None
            for output in write(told, WriteOptions("artifact.gguf")):
                place(output, path, Progress(), None, path)
        return path

    # -- verdicts

    def _judge(self, report: Report, what: str, reference: _Reference, found: _Outputs, device: str) -> None:
        """Against the reference, within the multiple of the noise floor."""
        for name, limit in self._limits(reference).items():
            figures, wrong = self._figures(reference.outputs, found, name)
            if wrong is None and figures.missing:
                wrong = f"NaN or infinity on one side only at {figures.missing} positions"
            if wrong is None and not figures.max_abs <= limit:
                wrong = f"off by more than {limit:.3g}"
            numbers = figures.to_json()
            numbers |= {"limit": limit, "floor": reference.floor.get(name, 0.0)}
            detail = f"{name}: {text_of(numbers)}; at most {limit:.3g} (floor {numbers['floor']:.2g})"
            told = f"{wrong}; {detail}" if wrong else detail
            status = "failed" if wrong else "passed"
            report.add(Check("function", what, status, told, device=device, figures=numbers))  # type: ignore[arg-type]

    def _limits(self, reference: _Reference) -> dict[str, float]:
        least = LEAST_GELU if self.gelu else LEAST
        out = {}
        for name, greatest in reference.greatest.items():
            if self.options.atol is not None or self.options.rtol is not None:
                out[name] = (self.options.atol or 0.0) + (self.options.rtol or 0.0) * greatest
            else:
                out[name] = max(FLOOR * reference.floor[name], least * max(1.0, greatest))
        return out

    def _activations(self, report: Report, exact: _Outputs, found: _Outputs, device: str) -> None:
        """The artifact beside its twin of f32: what the runtime's own rounding of activations does."""
        for name in next(iter(exact.by_case.values()), {}):
            order = [exact.by_case.get(case.name, {}) for case in self.cases]
            figures, wrong = self._figures(order, found, name)
            numbers = figures.to_json()
            if wrong is None and (figures.missing or not figures.nmse <= ACTIVATIONS):
                wrong = f"further than activations in blocks can be (NMSE at most {ACTIVATIONS})"
            detail = f"{name}: {text_of(numbers)}, against the same numbers as f32"
            status = "failed" if wrong else "passed"
            told = f"{wrong}; {detail}" if wrong else detail
            report.add(Check("function", "activations", status, told, device=device, figures=numbers))  # type: ignore[arg-type]

    def _loss(self, report: Report, reference: _Reference, found: _Outputs, device: str) -> None:
        limit = self.options.max_kl
        for name in reference.greatest:
            figures, wrong = self._figures(reference.outputs, found, name)
            numbers = figures.to_json()
            if wrong is None and limit is not None and "kl_mean" in numbers and not numbers["kl_mean"] <= limit:
                wrong = f"KL above {limit:g}"
            detail = f"{name}: {text_of(numbers)}, against the source"
            told = f"{wrong}; {detail}" if wrong else detail
            status = "failed" if wrong else "passed"
            report.add(Check("function", "loss", status, told, device=device, figures=numbers))  # type: ignore[arg-type]

    def _figures(
        self, reference: Sequence[Mapping[str, np.ndarray]], found: _Outputs, name: str
    ) -> tuple[Figures, str | None]:
        """(distances over all cases that ran, what is wrong with the outputs themselves or None)."""
        figures = Figures()
        for case, wanted in zip(self.cases, reference, strict=True):
            got = found.by_case.get(case.name)
            if got is None or name not in wanted:
                continue
            if name not in got:
                return figures, f"the output {name} is missing; there is {', '.join(got) or 'none'}"
            if got[name].shape != wanted[name].shape:
                return figures, f"the output has the shape {list(got[name].shape)}, not {list(wanted[name].shape)}"
            figures.add(wanted[name][case.mask], got[name][case.mask], name == LOGITS)
        if not figures.positions:
            return figures, "nothing was run"
        return figures, None

    def _ran(self, report: Report, found: _Outputs, device: str, runner: Runner) -> None:
        """What really ran, and which inputs; those that were not reached keep the verdict from being one."""
        facts = ", ".join(f"{key} {value}" for key, value in found.facts.items() if key not in ("system_info", "build"))
        cases = ", ".join(found.by_case)
        if not found.by_case:
            report.add(Check("function", "inputs", "not-verified", "no input was run", device=device))
        detail = f"{runner.title}: {facts}; inputs: {cases}"
        if found.dropped:
            detail += f"; left out: {', '.join(found.dropped)}"
        report.add(Check("function", "ran", "passed" if found.by_case else "not-verified", detail, device=device))


@dataclass(slots=True)
class _Outputs:
    by_case: dict[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def _runner(made: Opened, device: Device) -> Runner:
    """The runtime that is asked for, or the one of the artifact's format."""
    runners = registry.runners()
    if device.runtime is not None:
        runner = runners[device.runtime]
        if made.format.name not in runner.formats:
            raise UsageError(
                f"{runner.title} does not run {made.format.name}", expected=", ".join(sorted(runner.formats)),
                found=made.format.name,
            )  # fmt: skip
        return runner
    found = [runner for runner in runners.values() if made.format.name in runner.formats]
    if not found:
        raise DeviceAbsent(f"nothing here runs {made.format.name}", hint="weights alone compute nothing")
    return found[0]


def _checkpoint(source: Opened) -> tuple[dict[str, object], Weights]:
    """(config.json, weights as floats under transformers' names) of what the reference is built of."""
    weights = source.weights
    if source.format.name == "gguf":
        plain = dequantize_pass.dequantize(weights, lambda t: t.dtype.block > 1, asked=True)
        _, entries, named = translate.from_gguf(plain)
        return entries, replace(named, keyvalues=())
    if source.format.name == "mlx":
        back = mlx_route.to_transformers(weights)
        if back is not None:
            return back[1], back[0]
    read = translate.read_config(weights.companions)
    if read is None:
        raise RouteRefused(
            "the reference is built of a checkpoint folder: its config.json says which model it is", file=source.given,
            expected="config.json beside the weights", found="none",
        )  # fmt: skip
    return read[0], weights


def _family(config: Mapping[str, object]) -> Any:
    try:
        return translate.architecture_of(config)
    except ArtifactkitError:
        return None


def _own(made: Opened, source: Weights) -> Weights | None:
    """The artifact's numbers under transformers' names, where they are not the source's; None where they are."""
    held, given = ({t.dtype.name for t in w if t.dtype.cls == "float"} for w in (made.weights, source))
    grouped = any(step.outcome == "dequantised" for t in made.weights for step in t.steps)
    if held <= {"f32"} and not grouped:  # wider than any source of a model: the same numbers
        return None
    if made.format.name == "gguf":
        plain = dequantize_pass.dequantize(made.weights, lambda t: t.dtype.block > 1, asked=True)
        return replace(translate.from_gguf(plain)[2], keyvalues=())
    if made.format.name == "mlx":
        back = mlx_route.to_transformers(made.weights)
        return None if back is None else back[0]
    return made.weights if held != given else None
