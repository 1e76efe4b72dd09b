"""What is inside a call takes no other one: sessions, environments, built policies, nested runs."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import inspect
import pickle
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.python_policies import BUSY, PLACES, acting, loaded, methods

import spillway
from spillway import Simulation, UsageError, _core, policies, testing
from spillway.session import Session, Submitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

METHODS = methods()
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "advance": ((1000.0,), {}),
    "set": (({"fleet.target_instances": 1},), {}),
    "submit": ((), {"input_tokens": 10, "output_tokens": 5}),
    "cancel": ((0,), {}),
    "hand_off": ((0,), {"instance": 0, "output_tokens": 5}),
    "progress": (([0],), {}),
}
OF_THE_CORE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "advance": ((1000.0,), {}),
    "advance_by": ((5,), {}),
    "status": ((0,), {}),
    "set": (({"fleet.target_instances": 1}, 500.0), {}),
    "submit": ((_core.workload.Submission(), 500.0), {}),
    "fail": ((_core.cluster.Change(), 500.0), {}),
    "observe": ((True,), {}),
    "cancel": ((0,), {}),
    "hand_off": ((_core.workload.HandOff(),), {}),
    "progress": (([0],), {}),
    "knows": ((_core.workload.Submission(),), {}),
    "take_events": ((False,), {}),
}


def actions_of(held: Any, arguments: Any) -> dict[str, Callable[[], object]]:
    """A call of every public member of the object's class, by name."""
    found: dict[str, Callable[[], object]] = {}
    for name, member in inspect.getmembers(type(held)):
        if name.startswith("_"):
            continue
        if callable(member):
            positional, named = arguments.get(name, ((), {}))
            found[name] = lambda n=name, p=positional, m=named: getattr(held, n)(*p, **m)
        else:
            found[name] = lambda n=name: getattr(held, n)
    return found


def all_actions(session: Session) -> dict[str, Callable[[], object]]:
    """Every public member of a session, of its core, and of a submitted request."""
    core = session._core
    found = actions_of(session, ARGUMENTS)
    found |= {f"core.{n}": act for n, act in actions_of(core, OF_THE_CORE).items()}
    submitted = Submitted(session, 0)
    found |= {f"submitted.{n}": act for n, act in actions_of(submitted, {}).items()}
    found["copy"] = lambda: copy.copy(session)
    found["deepcopy"] = lambda: copy.deepcopy(session)
    found["pickle"] = lambda: pickle.dumps(session)
    found["advance_all"] = lambda: _core.cluster.advance_all([(core, {}, 0.0, 500.0)], 2)
    return found


ALLOWED = {"now_s", "core.now_s", "core.num_changes"}
NAMES = sorted(set(all_actions(spillway.start(BUSY))) - ALLOWED)


def begun(simulation: Simulation) -> Session:
    """A session with a submitted request and a change, so that every call has something to do."""
    session = spillway.start(simulation, 1).advance(0.3)
    session.submit(input_tokens=50, output_tokens=10)
    has_pools = simulation.instances[0].role != "both"
    size = "fleet.decode.target_instances" if has_pools else "fleet.target_instances"
    return session.set({size: 1 if has_pools else 2})


def expected(seam: str) -> spillway.Result:
    """The run of `begun` whose policy calls nothing."""
    return begun(loaded(seam)).finish()


@pytest.mark.parametrize(("seam", "method"), METHODS)
def test_a_policy_that_catches_the_refusals_changes_nothing(seam: str, method: str) -> None:
    """Every member of the session at every call of the method; after ten, one at each."""
    refused: dict[str, int] = dict.fromkeys(NAMES, 0)
    held: list[dict[str, Callable[[], object]]] = []

    def act() -> None:
        for calls in held:
            turn = sum(refused.values())
            for name in NAMES if turn < 10 * len(NAMES) else [NAMES[turn % len(NAMES)]]:
                with pytest.raises(
                    (UsageError, TypeError), match=r"inside (advance|finish)|copied"
                ):
                    calls[name]()
                refused[name] += 1
            for name in ALLOWED:
                calls[name]()

    session = begun(loaded(seam, acting(seam, method, act)))
    plain = expected(seam)
    held.append(all_actions(session))
    session.advance(1.0)
    result = session.finish()
    assert min(refused.values()) > 0
    assert result.outcome_digest == plain.outcome_digest
    assert result.ledger == plain.ledger
    held.clear()
    again = spillway.simulate(result.simulation, 1)
    assert again.digest == result.digest


def refusing(name: str, held: list[Session]) -> Callable[[], object]:
    def act() -> None:
        for session in held:
            all_actions(session)[name]()

    return act


@pytest.mark.parametrize(("seam", "method"), METHODS)
def test_a_policy_that_does_not_catch_it_ends_the_run(seam: str, method: str) -> None:
    for name in NAMES:
        held: list[Session] = []
        session = begun(loaded(seam, acting(seam, method, refusing(name, held))))
        now_s = session.now_s
        held.append(session)
        with pytest.raises(policies.PolicyError) as raised:
            session.advance(1000)
        cause = raised.value.__cause__
        assert isinstance(cause, UsageError | TypeError), (name, cause)
        # The run has stopped within an event: it neither goes on nor shows a state.
        assert session.now_s == now_s
        for other in ("advance", "observe", "set", "submit", "finish"):
            with pytest.raises(UsageError, match=r"an error ended the run.*inside advance"):
                all_actions(session)[other]()
        held.clear()
        # The past of the run is known.
        fork = session.fork()
        assert fork.now_s == now_s
        if name == NAMES[0]:
            assert fork.finish().outcome_digest == expected(seam).outcome_digest


def test_the_refusal_names_both_calls_and_what_is_allowed() -> None:
    held: list[Session] = []
    session = begun(loaded("Admission", acting("Admission", "decide", refusing("observe", held))))
    held.append(session)
    with pytest.raises(policies.PolicyError) as raised:
        session.advance(1000)
    assert str(raised.value.__cause__) == (
        "observe: the session is inside advance, and takes no call of its policies, of callbacks "
        "or of other threads until that returns; only now_s and seed can be read meanwhile"
    )


def test_every_seam_of_python_policies_is_tried() -> None:
    seams = {policy for name, policy in vars(policies).items() if name in PLACES}
    assert len(seams) == len(policies._SEAMS) == len(PLACES)
    required = {next(m for m in policies._SEAMS if hasattr(own, m)) for _, own in PLACES.values()}
    assert required == set(policies._SEAMS)


def test_what_a_session_has_is_readable_or_refused() -> None:
    public = {name for name in dir(Session) if not name.startswith("_")}
    assert public - {"now_s"} <= set(NAMES)
    assert {"core.finish", "core.advance_by", "submitted.status", "submitted.state"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_another_thread_is_refused(name: str) -> None:
    inside, asked = threading.Event(), threading.Event()
    held: list[Session] = []

    def act() -> None:
        if held and not asked.is_set():
            inside.set()
            assert asked.wait(60)

    session = begun(loaded("Router", acting("Router", "pick", act)))
    held.append(session)
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            assert inside.wait(60)
            assert session.now_s == pytest.approx(0.3)
            all_actions(session)[name]()
        except (UsageError, TypeError) as error:
            errors.append(error)
        finally:
            asked.set()

    thread = threading.Thread(target=ask)
    thread.start()
    result = session.finish()
    thread.join()
    assert len(errors) == 1
    assert result.outcome_digest == expected("Router").outcome_digest


def test_threads_that_call_at_once_leave_one_run() -> None:
    """Whatever gets in, the session has the past that it states."""
    session = spillway.start(BUSY.with_({"workload.num_requests": 3000}), 1)

    def work() -> None:
        for _ in range(150):
            for act in (
                lambda: session.advance(session.now_s + 0.1),
                lambda: session.submit(input_tokens=20, output_tokens=5),
                lambda: session.set({"fleet.target_instances": 2}),
                session.observe,
            ):
                # Or another thread has advanced it.
                with contextlib.suppress(UsageError, spillway.ConfigError):
                    act()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result = session.finish()
    assert len(session.submitted) == len([c for c in result.simulation.changes if c.submit])
    assert spillway.simulate(result.simulation, 1).digest == result.digest


# ---- callbacks ----------------------------------------------------------------------------------

LONG = BUSY.with_({"workload.num_requests": 40_000})


@contextlib.contextmanager
def handling(handler: Callable[[], None]) -> Iterator[None]:
    """Calls the handler, as one of a signal, after a moment of processor time."""
    spillway.simulate(BUSY)  # imports what the end of a run takes
    before = signal.signal(signal.SIGVTALRM, lambda *_: handler())
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.slow
def test_a_signal_handler_is_refused_and_the_run_goes_on() -> None:
    session = spillway.start(LONG, 1)
    seen: list[BaseException] = []

    def look() -> None:
        # Between the calls of the core, the session itself refuses.
        for name in sorted({name for name in NAMES if "." not in name} - {"advance_all"}):
            with pytest.raises((UsageError, TypeError)) as raised:
                all_actions(session)[name]()
            seen.append(raised.value)

    with handling(look):
        result = session.finish()
    assert seen
    assert result.digest == spillway.simulate(LONG, 1).digest


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupted_session_is_held_where_it_was(error: type[BaseException]) -> None:
    def stop() -> None:
        raise error

    session = spillway.start(LONG, 1)
    with handling(stop), pytest.raises(error):
        session.advance(1e6)
    reached_s = session.now_s
    assert 0 < reached_s < 1e6
    assert not session.is_over
    fork = session.fork()
    assert fork.observe() == session.observe()
    session.set({"fleet.target_instances": 1}).submit(input_tokens=10, output_tokens=1)
    with handling(stop), pytest.raises(error):
        session.finish()
    assert session.now_s > reached_s
    result = session.finish()
    assert spillway.simulate(result.simulation, 1).digest == result.digest
    assert fork.finish().digest == spillway.simulate(LONG, 1).digest


def test_ctrl_c_inside_a_policy_ends_the_run_but_not_its_past() -> None:
    """It comes within an event, so the session cannot go on; a fork can."""
    stops = [False]

    def act() -> None:
        if stops[0]:
            raise KeyboardInterrupt

    session = begun(loaded("Router", acting("Router", "pick", act)))
    stops[0] = True
    with pytest.raises(KeyboardInterrupt):
        session.advance(1.0)
    stops[0] = False
    with pytest.raises(
        UsageError, match=r"advance: an error ended the run.*inside advance; a fork"
    ):
        session.advance(1.0)
    assert repr(session) == "<Session of seed 1 at 0.3 s>"
    assert session.fork().finish().outcome_digest == expected("Router").outcome_digest


def test_c_functions_are_refused_like_python() -> None:
    refused: list[str] = []
    held: list[Session] = []

    def decide(*_: Any) -> int:
        for session in held:
            for name in NAMES:
                with pytest.raises((UsageError, TypeError)):
                    all_actions(session)[name]()
                refused.append(name)
        return 1

    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    function = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, number, real, pointer)(decide)
    score_type = ctypes.CFUNCTYPE(None, pointer, pointer, number, real, pointer, pointer)
    score = score_type(lambda *_: decide() and None)
    written = BUSY.with_(
        {
            "gateway.admission": policies.compiled_admission(function, name="c", version="1"),
            "router": {"kind": "weighted", "scorers": [{"kind": "queue_depth"}]},
        }
    )
    scored = written.router.replace(
        scorers=[policies.compiled_scorer(score, name="s", version="1")]
    )
    written = written.replace(router=scored)
    plain = begun(written).finish()
    session = begun(written)
    held.append(session)
    result = session.finish()
    assert set(refused) == set(NAMES)
    assert result.outcome_digest == plain.outcome_digest


def test_progress_is_called_between_calls() -> None:
    """A callback of `simulate` holds no session, and may run simulations."""
    inner: list[str] = []

    def report(_done: int, _total: int) -> None:
        inner.append(spillway.simulate(BUSY, 1).digest)

    outer = spillway.simulate(BUSY, 2, progress=report)
    assert outer.digest == spillway.simulate(BUSY, 2).digest
    many = spillway.run_many([BUSY], [2], progress=report, keep_requests=True)
    assert many[0][0].digest == outer.digest
    assert set(inner) == {spillway.simulate(BUSY, 1).digest}


def test_a_session_may_be_forgotten_inside_its_call() -> None:
    held: list[Session] = []

    def forget() -> None:
        held.clear()
        gc.collect()

    plain = expected("Admission")
    session = begun(loaded("Admission", acting("Admission", "decide", forget)))
    held.append(session)
    del session
    result = held[0].finish()
    assert result.outcome_digest == plain.outcome_digest


def test_the_end_of_a_policy_is_inside_the_call_that_ends_it() -> None:
    """`finish` and a replay destroy policies, whose `__del__` may call the session."""
    seen: list[str] = []
    held: list[Session] = []

    class Leaving(PLACES["Admission"][1]):
        def __del__(self) -> None:
            for session in held:
                with pytest.raises(UsageError) as raised:
                    session.observe()
                seen.append(str(raised.value))

    session = begun(loaded("Admission", Leaving))
    held.append(session)
    # The first threshold of busy workers takes a replay.
    session.set({"busy_monitor.active_decode_blocks_threshold": 0.9})
    result = session.finish()
    assert [message.split(" of its")[0].split(",")[0] for message in seen] == [
        "observe: the session is inside set",
        "observe: the session is inside finish",
    ]
    held.clear()
    assert spillway.simulate(result.simulation, 1).digest == result.digest


def test_a_session_is_not_copied_before_it_is_over() -> None:
    session = begun(BUSY)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled before it is over"):
            copied(session)
    plain = begun(BUSY).finish()
    assert session.finish().digest == plain.digest
    (request,) = pickle.loads(pickle.dumps(session.submitted))
    assert request.state == session.submitted[0].state == "completed"


def test_what_is_over_takes_no_calls() -> None:
    session = begun(BUSY)
    core = session._core
    calls = all_actions(session)
    session.finish()
    kept = {"copy", "deepcopy", "pickle", "recent_changes", "simulation", "submitted"}
    for name in set(NAMES) - kept:
        if name.startswith("submitted."):
            continue
        with pytest.raises(UsageError, match=r"over: finish"):
            calls[name]()
    assert session.simulation.changes
    assert core.now_s > 0
    assert session.submitted[0].status().has_ended


def test_a_number_that_no_request_has_is_refused() -> None:
    session = begun(BUSY)
    with pytest.raises(UsageError, match="no request has the number 7"):
        Submitted(session, 7).status()
    assert repr(Submitted(session, 7)) == "<Submitted request 7>"
    assert session.finish().ledger["completed"] > 0


# ---- environments -------------------------------------------------------------------------------


def test_an_environment_takes_one_call() -> None:
    pytest.importorskip("gymnasium")
    from spillway.envs import GatewayEnv, GatewayVectorEnv

    cap = {"gateway.limit.max_in_flight": (4, 64)}
    low, high = (np.array([value], dtype=np.float32) for value in (-1, 1))
    refused: list[str] = []
    calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def act(*_: object) -> float:
        for call, arguments in calls:
            with pytest.raises(UsageError, match="is inside"):
                call(*arguments)
            refused.append(call.__qualname__)
        return 0.0

    def simulated(policy: type | None) -> Simulation:
        return loaded("Router", policy).with_({"gateway.limit": {"kind": "fixed"}})

    def digest(policy: type | None, reward: Any, several: bool) -> str:
        calls.clear()
        if several:
            env: Any = GatewayVectorEnv(
                simulated(policy), cap, 2, interval_s=0.3, reward=reward, threads=2
            )
            one = env.envs[1]
            env.reset(options={"simulation_seed": 1})
            more = [(env.reset, ()), (env.step, (np.array([high, high]),))]
        else:
            env = one = GatewayEnv(simulated(policy), cap, interval_s=0.3, reward=reward)
            env.reset(options={"simulation_seed": 1})
            more = []
        calls.extend([*more, (one.reset, ()), (one.step, (high,)), (one.result, ())])
        for _ in range(3):
            env.step(np.array([low, low]) if several else low)
        if policy is None:
            calls.clear()
        result = one.result()
        calls.clear()
        assert spillway.simulate(result.simulation, 1).digest == result.digest
        found: str = result.outcome_digest
        return found

    for several in (False, True):
        plain = digest(None, lambda *_: 0.0, several)
        assert digest(acting("Router", "pick", act), lambda *_: 0.0, several) == plain
        assert digest(None, act, several) == plain
    assert {name.split(".")[1] for name in refused} == {"reset", "step", "result"}
    assert {name.split(".")[0] for name in refused} == {"GatewayEnv", "GatewayVectorEnv"}


def test_one_session_is_advanced_once_at_a_time() -> None:
    from spillway.session import _advance_by

    session = begun(BUSY)
    with pytest.raises(UsageError, match="advance: the session is inside advance"):
        _advance_by(1.0, [(session, {}), (session, {})], threads=2)
    assert session.finish().outcome_digest == begun(BUSY).finish().outcome_digest


@pytest.mark.slow
def test_an_interrupted_step_keeps_what_it_has_set() -> None:
    pytest.importorskip("gymnasium")
    from spillway.envs import GatewayEnv

    def stop() -> None:
        raise KeyboardInterrupt

    env = GatewayEnv(
        LONG.with_({"gateway.limit": {"kind": "fixed", "max_in_flight": 64}}),
        {"gateway.limit.max_in_flight": (4, 64)},
        interval_s=1e6,
        reward=lambda *_: 0.0,
    )
    env.reset(options={"simulation_seed": 1})
    with handling(stop), pytest.raises(KeyboardInterrupt):
        env.step(np.array([-0.5], dtype=np.float32))
    result = env.result()
    assert len(result.simulation.changes) == 1
    assert spillway.simulate(result.simulation, 1).digest == result.digest


# ---- runs in runs -------------------------------------------------------------------------------

DEPTH = 8


class Counted:
    """Starts runs that contain the policy that starts them; counts them."""

    def __init__(self, begin: Callable[[Simulation], object], *, catches: bool) -> None:
        self.runs = self.deep = 0

        def act() -> None:
            self.runs += 1
            try:
                begin(self.simulation)
            except (RecursionError, policies.PolicyError):
                self.deep += 1
                if not catches:
                    raise

        self.simulation = loaded("Admission", acting("Admission", "decide", act)).with_(
            {"workload.num_requests": 20}
        )


BEGIN: dict[str, Callable[[Simulation], object]] = {
    "simulate": lambda simulation: spillway.simulate(simulation, 2),
    "seeds": lambda simulation: spillway.simulate(simulation, seeds=2, threads=2),
    "run_many": lambda simulation: spillway.run_many([simulation] * 2, threads=2),
    "reference": lambda simulation: spillway.simulate(simulation, 2, reference=True),
    "progress": lambda simulation: spillway.simulate(simulation, 2, progress=lambda *_: None),
    "session": lambda simulation: spillway.start(simulation, 2).finish(),
    "pieces": lambda simulation: spillway.start(simulation, 2).advance(requests=3).fork().finish(),
    "advance_all": lambda simulation: _core.cluster.advance_all(
        [(spillway.start(simulation, seed)._core, {}, 0.0, 1e6) for seed in (1, 2, 3)], 2
    ),
}


@pytest.mark.parametrize("begin", BEGIN.values(), ids=BEGIN)
def test_runs_that_contain_themselves_end(begin: Callable[[Simulation], object]) -> None:
    counted = Counted(begin, catches=False)
    with pytest.raises(policies.PolicyError) as raised:
        spillway.simulate(counted.simulation, 1)
    error: BaseException | None = raised.value
    chain = []
    while error is not None:
        chain.append(type(error))
        last, error = error, error.__cause__
    assert chain[-1] is RecursionError
    assert set(chain[:-1]) == {policies.PolicyError}
    # On several threads, a run beside this one may have been too deep before.
    assert len(chain) <= DEPTH + 1
    if begin in (BEGIN["simulate"], BEGIN["session"], BEGIN["reference"]):
        assert len(chain) == DEPTH + 1
    assert "nested in the policies of others more than 8 deep" in str(last)
    assert spillway.simulate(BUSY, 1).ledger["completed"] > 0


@pytest.mark.parametrize("begin", BEGIN.values(), ids=BEGIN)
def test_a_policy_that_catches_it_does_not_try_forever(
    begin: Callable[[Simulation], object],
) -> None:
    counted = Counted(begin, catches=True)
    result = spillway.simulate(counted.simulation, 1)
    assert result.ledger["completed"] == 20
    assert DEPTH <= counted.deep <= counted.runs < 40 * 20 * DEPTH
    # The next run begins anew.
    again = counted.runs
    assert spillway.simulate(counted.simulation, 1).digest == result.digest
    assert counted.runs > again


def test_a_policy_that_starts_runs_when_it_is_made_ends() -> None:
    class Making(PLACES["Admission"][1]):
        def __init__(self) -> None:
            spillway.start(loaded("Admission", Making))

    with pytest.raises(policies.PolicyError, match="cannot be made"):
        spillway.simulate(loaded("Admission", Making))


def test_a_policy_may_look_ahead() -> None:
    """Runs of other simulations, and of its own session's past, by its configuration."""
    plain = loaded("Admission")
    seen: list[float] = []

    def look() -> None:
        ahead = spillway.start(plain, 3).advance(0.2)
        seen.append(ahead.fork().finish().ledger["completed"])

    result = spillway.simulate(loaded("Admission", acting("Admission", "decide", look)), 1)
    assert len(set(seen)) == 1
    assert result.outcome_digest == spillway.simulate(plain, 1).outcome_digest


# ---- policies by themselves ---------------------------------------------------------------------


REQUEST = testing.Request(input_tokens=10, tenant="gold")
READING = testing.Reading(value=1.0, samples=3, in_flight=2)
OF_BUILT: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    **dict.fromkeys(("joined", "dispatched", "started", "decide"), ((REQUEST,), {})),
    **dict.fromkeys(("first_token", "emitted", "ended", "left", "finished"), ((REQUEST,), {})),
    "learn": ((REQUEST,), {"instance": 0}),
    "sample": ((1.0,), {}),
    "resize": ((5.0,), {}),
    "set_workers": ((1,), {}),
}
DECIDE = {"UsageLimit": (0.5,), "Controller": (READING,), "Picker": ([0.5, 0.7],), "Fairness": ()}
# In the order of a request's life.
STEPS = ("joined", "decide", "dispatched", "started", "first_token", "sample", "resize")
ENDS = ("ended", "finished", "joined", "left")


@pytest.mark.parametrize(
    ("seam", "method"),
    [method for method in METHODS if method[0] not in ("Scheduler", "Decider")],  # need a run
)
def test_a_built_policy_is_not_called_from_inside(seam: str, method: str) -> None:
    arguments = {**OF_BUILT, "decide": (DECIDE.get(seam, (REQUEST,)), {})}
    held: list[dict[str, Callable[[], object]]] = []
    refused: set[str] = set()

    def act() -> None:
        for calls in held:
            for name, call in calls.items():
                with pytest.raises(UsageError, match=r"policy is inside|has not seen"):
                    call()
                refused.add(name)

    def lived(policy: type) -> tuple[list[object], Any]:
        built = testing.build(policy, simulation=loaded(seam))
        calls = actions_of(built, arguments)
        held.append(calls)
        answers = [calls[name]() for name in (*STEPS, *ENDS) if name in calls]
        held.clear()
        return answers, built

    plain, built = lived(PLACES[seam][1])
    assert lived(acting(seam, method, act))[0] == plain
    assert refused == set(actions_of(built, {}))
