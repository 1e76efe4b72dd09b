// Policies written in Python: adapters that take the interpreter's lock for each call and pass
// views. Runs do not hold the lock, so runs on other threads go on meanwhile.
#include "bindings/python_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/settings.h"
#include "gateway/admission/admission.h"
#include "gateway/admission/admission_factory.h"
#include "gateway/admission/python_admission.h"
#include "gateway/controller/controller.h"
#include "gateway/controller/controller_factory.h"
#include "gateway/fairness/fairness.h"
#include "gateway/fairness/fairness_factory.h"
#include "router/policy.h"
#include "router/python_router.h"
#include "router/router_factory.h"
#include "router/scorers/python_scorer.h"
#include "router/scorers/scorer.h"
#include "router/scorers/scorer_factory.h"
#include "signals/view.h"
#include "sim/error.h"

namespace spillway::bindings {

namespace {

using sim::Time;

// The state that Python keeps of this thread. Threads of a batch would otherwise make and destroy
// one for each call, which takes longer than the call.
class ThreadState {
 public:
  ThreadState() {
    if (PyGILState_GetThisThreadState() != nullptr) return;  // a thread of Python
    made_ = PyGILState_Ensure();
    kept_ = PyEval_SaveThread();
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;
  ~ThreadState() {
    if (kept_ == nullptr || Py_IsInitialized() == 0) return;
    PyEval_RestoreThread(kept_);
    PyGILState_Release(made_);
  }

 private:
  PyGILState_STATE made_{};
  PyThreadState* kept_ = nullptr;
};

/// The interpreter's lock, for a call.
class InterpreterLock {
 public:
  InterpreterLock() : locked_(prepared()) {}
  InterpreterLock(const InterpreterLock&) = delete;
  InterpreterLock& operator=(const InterpreterLock&) = delete;
  ~InterpreterLock() = default;

 private:
  struct Locked {
    explicit Locked(const ThreadState&) {}
    py::gil_scoped_acquire gil;
  };
  static const ThreadState& prepared() {
    thread_local const ThreadState state;
    return state;
  }
  Locked locked_;
};

[[noreturn]] void refuse_late() {
  throw sim::UsageError("requests and views are valid only during the call that gets them");
}

/// The request of the present call.
class CallRequest {
 public:
  explicit CallRequest(std::vector<py::str> tenants) : tenants_(std::move(tenants)) {}

  void set(const signals::RequestView* request) { request_ = request; }
  const signals::RequestView& get() const {
    if (request_ == nullptr) refuse_late();
    return *request_;
  }
  /// Index of the tenant, or its name where it is known.
  py::object tenant() const {
    const std::size_t index = get().tenant();
    if (index < tenants_.size()) return tenants_[index];
    return py::int_(index);
  }

 private:
  std::vector<py::str> tenants_;
  const signals::RequestView* request_ = nullptr;
};

// A column of a view: one value per candidate, read once per call. The array is reused while no
// more candidates come, and belongs to NumPy, so that one that is kept stays readable.
template <class T>
class SignalColumn {
 public:
  void forget() { is_read_ = false; }
  template <class Get>
  const py::array& read(std::size_t size, const Get& get) {
    if (is_read_) return array_;
    if (!array_ || static_cast<std::size_t>(array_.size()) != size) {
      array_ = py::array_t<T>(static_cast<py::ssize_t>(size));
      values_ = static_cast<T*>(array_.mutable_data());
      array_.attr("setflags")(py::arg("write") = false);
    }
    for (std::size_t i = 0; i < size; ++i) values_[i] = static_cast<T>(get(i));
    is_read_ = true;
    return array_;
  }

 private:
  py::array array_{py::reinterpret_steal<py::array>(nullptr)};
  T* values_ = nullptr;
  bool is_read_ = false;
};

/// The view of the present call.
class CallView {
 public:
  void set(const signals::View& view, Time now, sim::Draws* draws) {
    view_ = &view;
    now_ = now;
    draws_ = draws;
  }
  void unset() {
    if (draws_ != nullptr && has_drawn_) *draws_ = own_draws_;  // for the policies that follow
    has_drawn_ = false;
    view_ = nullptr;
    if (!is_used_) return;
    is_used_ = false;
    forget(instances_, waiting_, running_, in_flight_, kv_utilization_, free_blocks_,
           prefill_tokens_, age_, num_kv_blocks_, max_num_seqs_);
  }

  std::size_t size() const { return get().size(); }
  double now_s() const {
    get();
    return sim::to_seconds(now_);
  }
  sim::Draws& rng() {
    get();
    if (draws_ == nullptr) throw sim::UsageError("this decision has no random numbers");
    if (!std::exchange(has_drawn_, true)) own_draws_ = *draws_;
    return own_draws_;
  }
  bool has_workers() const { return get().has_workers(); }

  py::array instances() {
    return column(instances_, [](const auto& view, std::size_t i) { return view.id(i).index(); });
  }
  py::array waiting() {
    return column(waiting_,
                  [](const auto& view, std::size_t i) { return view.occupancy(i).waiting; });
  }
  py::array running() {
    return column(running_,
                  [](const auto& view, std::size_t i) { return view.occupancy(i).running; });
  }
  py::array in_flight() {
    return column(in_flight_, [](const auto& view, std::size_t i) { return view.in_flight(i); });
  }
  py::array kv_utilization() {
    return column(kv_utilization_,
                  [](const auto& view, std::size_t i) { return view.kv_utilization(i); });
  }
  py::array free_blocks() {
    return column(free_blocks_,
                  [](const auto& view, std::size_t i) { return view.instance(i).free_blocks; });
  }
  py::array prefill_tokens() {
    return column(prefill_tokens_,
                  [](const auto& view, std::size_t i) { return view.instance(i).prefill_tokens; });
  }
  py::array age_s() {
    return column(age_, [this](const auto& view, std::size_t i) {
      const Time measured = view.instance(i).measured;
      if (!sim::is_set(measured)) return std::numeric_limits<double>::quiet_NaN();
      return sim::to_seconds(now_ - measured);
    });
  }
  py::array num_kv_blocks() {
    return column(num_kv_blocks_,
                  [](const auto& view, std::size_t i) { return view.capacity(i).num_kv_blocks; });
  }
  py::array max_num_seqs() {
    return column(max_num_seqs_,
                  [](const auto& view, std::size_t i) { return view.capacity(i).max_num_seqs; });
  }

 private:
  const signals::View& get() const {
    if (view_ == nullptr) refuse_late();
    return *view_;
  }
  template <class T, class Get>
  py::array column(SignalColumn<T>& of, const Get& value) {
    const signals::View& view = get();
    is_used_ = true;
    return of.read(view.size(), [&](std::size_t i) { return value(view, i); });
  }
  static void forget(auto&... columns) { (columns.forget(), ...); }

  const signals::View* view_ = nullptr;
  Time now_{0};
  sim::Draws* draws_ = nullptr;
  sim::Draws own_draws_{0, sim::Stream::admission, 0};
  bool has_drawn_ = false;
  bool is_used_ = false;
  SignalColumn<std::int64_t> instances_, waiting_, running_, in_flight_, free_blocks_,
      prefill_tokens_, num_kv_blocks_, max_num_seqs_;
  SignalColumn<double> kv_utilization_, age_;
};

// Drops a reference wherever the last owner ends, which may hold no lock.
void release(py::object& object) {
  if (!object) return;
  if (Py_IsInitialized() == 0) {
    object.release();
    return;
  }
  const py::gil_scoped_acquire gil;
  object = py::object();
}

/// A Python policy of one run, with the objects that its calls get. All functions but the
/// constructor and the destructor are called with the lock.
class Held {
 public:
  Held(const py::object& maker, const std::string& name, std::vector<py::str> tenants)
      : name_(name) {
    try {
      policy_ = maker();
    } catch (py::error_already_set& error) {
      raise(error, name_ + " cannot be made");
    }
    request_ = py::cast(CallRequest(std::move(tenants)), py::return_value_policy::move);
    view_ = py::cast(CallView(), py::return_value_policy::move);
    call_request_ = &py::cast<CallRequest&>(request_);
    call_view_ = &py::cast<CallView&>(view_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    for (py::object* one : {&policy_, &request_, &view_}) release(*one);
  }

  /// The method; unset if the policy has none and it is not `needed`.
  py::object method(const char* verb, bool needed) const {
    if (py::hasattr(policy_, verb)) return policy_.attr(verb);
    if (!needed) return py::reinterpret_steal<py::object>(nullptr);
    fail(name_ + " must have a method " + verb + "; see spillway.policies");
  }
  /// Calls a method with the request and what follows.
  py::object call(const py::object& method, const char* verb, const signals::RequestView& request,
                  const signals::View* view, Time now, sim::Draws* draws,
                  const py::object& third = {}) {
    call_request_->set(&request);
    if (view != nullptr) call_view_->set(*view, now, draws);
    std::array<PyObject*, 3> arguments{request_.ptr(), nullptr, nullptr};
    std::size_t count = 1;
    if (view != nullptr) arguments[count++] = view_.ptr();
    if (third) arguments[count++] = third.ptr();
    PyObject* result = PyObject_Vectorcall(method.ptr(), arguments.data(), count, nullptr);
    call_request_->set(nullptr);
    if (view != nullptr) call_view_->unset();
    if (result == nullptr) raised(verb, where(request, now));
    return py::reinterpret_steal<py::object>(result);
  }
  /// Calls a method that concerns no request.
  py::object call(const py::object& method, const char* verb, Time now,
                  std::span<PyObject* const> arguments) {
    PyObject* result =
        PyObject_Vectorcall(method.ptr(), arguments.data(), arguments.size(), nullptr);
    if (result == nullptr) raised(verb, at(now));
    return py::reinterpret_steal<py::object>(result);
  }
  [[noreturn]] void refuse(const char* verb, const py::object& result, const std::string& allowed,
                           Time now) const {
    fail(name_ + "." + verb + " returned " + std::string(py::repr(result)) + at(now) +
         ": must be " + allowed);
  }
  /// Ends the run: the result of a method is not what the contract says.
  [[noreturn]] void refuse(const char* verb, const py::object& result, const std::string& allowed,
                           const signals::RequestView& request, Time now) const {
    fail(name_ + "." + verb + " returned " + std::string(py::repr(result)) + where(request, now) +
         ": must be " + allowed);
  }

 private:
  static std::string at(Time now) { return " at " + sim::to_text(sim::to_seconds(now)) + " s"; }
  static std::string where(const signals::RequestView& request, Time now) {
    return " for request " + std::to_string(request.row()) + at(now);
  }
  // The method has raised the exception that is set.
  [[noreturn]] void raised(const char* verb, const std::string& where) const {
    py::error_already_set error;
    if (error.matches(PyExc_KeyboardInterrupt) || error.matches(PyExc_SystemExit)) throw error;
    raise(error, name_ + "." + verb + " raised " +
                     std::string(py::str(error.type().attr("__name__"))) + where);
  }
  static py::object error_class() {
    return py::module_::import("spillway.policies").attr("PolicyError");
  }
  [[noreturn]] static void raise(py::error_already_set& cause, const std::string& message) {
    const py::object type = error_class();
    py::raise_from(cause, type.ptr(), message.c_str());
    throw py::error_already_set();
  }
  [[noreturn]] static void fail(const std::string& message) {
    const py::object type = error_class();
    PyErr_SetString(type.ptr(), message.c_str());
    throw py::error_already_set();
  }

  std::string name_;
  py::object policy_, request_, view_;
  CallRequest* call_request_ = nullptr;
  CallView* call_view_ = nullptr;
};

// A method of a policy, which is optional.
class Method {
 public:
  Method(Held& held, const char* verb, bool needed = false)
      : held_(held), verb_(verb), method_(held.method(verb, needed)) {}
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;
  ~Method() { release(method_); }

  explicit operator bool() const { return static_cast<bool>(method_); }
  py::object operator()(const signals::RequestView& request, const signals::View& view, Time now,
                        sim::Draws* draws) {
    return held_.call(method_, verb_, request, &view, now, draws);
  }
  // A call that concerns no request.
  py::object call(Time now, const auto&... arguments) {
    const std::array<PyObject*, sizeof...(arguments)> all{arguments.ptr()...};
    return held_.call(method_, verb_, now, all);
  }
  [[noreturn]] void refuse(const py::object& result, const std::string& allowed, Time now) const {
    held_.refuse(verb_, result, allowed, now);
  }
  // Notifies it, if it is there.
  void tell(const signals::RequestView& request, Time now, auto&&... more) {
    if (!method_) return;
    const InterpreterLock lock;
    held_.call(method_, verb_, request, nullptr, now, nullptr, py::cast(more)...);
  }
  [[noreturn]] void refuse(const py::object& result, const std::string& allowed,
                           const signals::RequestView& request, Time now) const {
    held_.refuse(verb_, result, allowed, request, now);
  }

 private:
  Held& held_;
  const char* verb_;
  py::object method_;
};

// ---- admission ----------------------------------------------------------------------------------

// Names of the reasons for which a Python policy may reject, in order.
constexpr std::array<std::string_view, 3> kReasons{"saturated", "rate_limited", "unservable"};
static_assert(kReasons.size() == gateway::PythonAdmission::reasons.size());

class PythonAdmissionPolicy final : public gateway::AdmissionPolicy {
 public:
  PythonAdmissionPolicy(const py::object& maker, const std::string& name,
                        std::vector<py::str> tenants)
      : held_(maker, name, std::move(tenants)) {}

  gateway::Verdict decide(const signals::RequestView& request, const signals::View& view, Time now,
                          sim::Draws& draws) override {
    using gateway::Verdict;
    const InterpreterLock lock;
    const py::object result = decide_(request, view, now, &draws);
    if (result.ptr() == Py_True) return Verdict::admit();
    if (result.ptr() == Py_False) return Verdict::reject();
    const std::string_view type = Py_TYPE(result.ptr())->tp_name;
    if (type == "numpy.bool" || type == "numpy.bool_") {
      return PyObject_IsTrue(result.ptr()) == 1 ? Verdict::admit() : Verdict::reject();
    }
    if (py::hasattr(result, "reason")) {
      const py::object reason = result.attr("reason");
      for (std::size_t i = 0; i < kReasons.size(); ++i) {
        if (reason.equal(py::str(std::string(kReasons[i])))) {
          return Verdict::reject(static_cast<std::uint8_t>(i));
        }
      }
    }
    decide_.refuse(result, "True, False or Reject(reason)", request, now);
  }
  void commit(const signals::RequestView& request, Time now) override {
    commit_.tell(request, now, sim::to_seconds(now));
  }
  void dispatched(const signals::RequestView& request, Time now) override {
    dispatched_.tell(request, now, sim::to_seconds(now));
  }
  void first_token(const signals::RequestView& request, sim::InstanceId, Time now) override {
    first_token_.tell(request, now, sim::to_seconds(now));
  }
  void finished(const signals::RequestView& request, workload::Outcome, Time now) override {
    finished_.tell(request, now, sim::to_seconds(now));
  }

 private:
  Held held_;
  Method decide_{held_, "decide", true}, commit_{held_, "commit"}, dispatched_{held_, "dispatched"},
      first_token_{held_, "first_token"}, finished_{held_, "finished"};
};

// ---- router -------------------------------------------------------------------------------------

class PythonRoutingPolicy final : public router::RoutingPolicy {
 public:
  PythonRoutingPolicy(const py::object& maker, const std::string& name) : held_(maker, name, {}) {}

  sim::InstanceId pick(const signals::RequestView& request, const signals::View& view, Time now,
                       sim::Draws& draws) override {
    const InterpreterLock lock;
    const py::object result = pick_(request, view, now, &draws);
    const Py_ssize_t chosen = PyNumber_AsSsize_t(result.ptr(), nullptr);  // clips
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    const bool is_index = PyIndex_Check(result.ptr()) != 0 && !py::isinstance<py::bool_>(result);
    if (!is_index || chosen < 0 || static_cast<std::size_t>(chosen) >= view.size()) {
      pick_.refuse(result, "the position of a candidate, >= 0 and < " + std::to_string(view.size()),
                   request, now);
    }
    return view.id(static_cast<std::size_t>(chosen));
  }

 private:
  Held held_;
  Method pick_{held_, "pick", true};
};

class PythonScorer final : public router::Scorer {
 public:
  PythonScorer(const py::object& maker, const std::string& name) : held_(maker, name, {}) {}

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    const InterpreterLock lock;
    const Time now = view.now();
    const py::object result = score_(request, view, now, nullptr);
    const auto values =
        py::array_t<double, py::array::c_style | py::array::forcecast>::ensure(result);
    if (!values) PyErr_Clear();
    const bool fits = values && values.ndim() == 1 &&
                      static_cast<std::size_t>(values.size()) == scores.size() &&
                      std::none_of(values.data(), values.data() + values.size(),
                                   [](double one) { return std::isnan(one); });
    if (!fits) {
      score_.refuse(result,
                    "an array of " + std::to_string(scores.size()) +
                        " numbers, one per candidate, none of them NaN",
                    request, now);
    }
    std::copy_n(values.data(), scores.size(), scores.begin());
  }

 private:
  Held held_;
  Method score_{held_, "score", true};
};

// ---- controller ---------------------------------------------------------------------------------

class PythonControllerPolicy final : public gateway::ControllerPolicy {
 public:
  PythonControllerPolicy(const py::object& maker, const std::string& name)
      : held_(maker, name, {}) {}

  void sample(double value, Time dispatched, Time now) override {
    if (!sample_) return;
    const InterpreterLock lock;
    sample_.call(now, py::float_(value), py::float_(sim::to_seconds(dispatched)),
                 py::float_(sim::to_seconds(now)));
  }
  double tick(const gateway::Reading& reading, double limit, Time now) override {
    const InterpreterLock lock;
    const py::object result =
        tick_.call(now, py::cast(reading), py::float_(limit), py::float_(sim::to_seconds(now)));
    const double wanted = PyFloat_AsDouble(result.ptr());
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    const bool is_number = PyFloat_Check(result.ptr()) != 0 || PyIndex_Check(result.ptr()) != 0;
    if (!is_number || !std::isfinite(wanted) || wanted < 0) {
      tick_.refuse(result, "the limit, a finite number >= 0", now);
    }
    return wanted;
  }

 private:
  Held held_;
  Method tick_{held_, "tick", true}, sample_{held_, "sample"};
};

// ---- fairness -----------------------------------------------------------------------------------

/// The queues of the present call, by tenant.
class CallQueues {
 public:
  CallQueues(std::vector<double> weights) : weights_(std::move(weights)) {}

  void set(const gateway::TenantQueues* queues, const gateway::FairnessPolicy::MayStart* may_start,
           Time now) {
    queues_ = queues;
    may_start_ = may_start;
    now_ = now;
    lengths_.forget();
    head_costs_.forget();
    head_waits_.forget();
    head_serials_.forget();
    startable_.forget();
  }
  std::size_t size() const { return get().num_flows(); }
  double now_s() const {
    get();
    return sim::to_seconds(now_);
  }
  py::array weights() {
    return of_weights_.read(size(), [&](std::size_t i) { return weights_.at(i); });
  }
  py::array lengths() {
    return lengths_.read(size(), [&](std::size_t i) { return get().length(sim::TenantId{i}); });
  }
  py::array head_costs() {
    return head_costs_.read(size(), [&](std::size_t i) {
      return of_head(i, [](const auto& head) { return head.cost; });
    });
  }
  py::array head_waits_s() {
    return head_waits_.read(size(), [&](std::size_t i) {
      return of_head(i, [&](const auto& head) { return sim::to_seconds(now_ - head.entered); });
    });
  }
  py::array head_serials() {
    return head_serials_.read(size(), [&](std::size_t i) {
      const sim::TenantId flow{i};
      return get().length(flow) == 0 ? 0 : get().head(flow).serial;
    });
  }
  py::array may_start() {
    get();
    if (may_start_ == nullptr) throw sim::UsageError("only next sees which tenants may start");
    return startable_.read(size(), [&](std::size_t i) {
      const sim::TenantId flow{i};
      return get().length(flow) > 0 && (*may_start_)(flow);
    });
  }

 private:
  const gateway::TenantQueues& get() const {
    if (queues_ == nullptr) refuse_late();
    return *queues_;
  }
  double of_head(std::size_t i, const auto& value) const {
    const sim::TenantId flow{i};
    if (get().length(flow) == 0) return std::numeric_limits<double>::quiet_NaN();
    return value(get().head(flow));
  }

  std::vector<double> weights_;
  const gateway::TenantQueues* queues_ = nullptr;
  const gateway::FairnessPolicy::MayStart* may_start_ = nullptr;
  Time now_{0};
  SignalColumn<double> of_weights_, head_costs_, head_waits_;
  SignalColumn<std::int64_t> lengths_, head_serials_;
  SignalColumn<bool> startable_;
};

class PythonFairnessPolicy final : public gateway::FairnessPolicy {
 public:
  PythonFairnessPolicy(const py::object& maker, const std::string& name,
                       std::span<const double> weights)
      : held_(maker, name, {}),
        queues_(
            py::cast(CallQueues({weights.begin(), weights.end()}), py::return_value_policy::move)),
        call_queues_(py::cast<CallQueues&>(queues_)) {}
  PythonFairnessPolicy(const PythonFairnessPolicy&) = delete;
  PythonFairnessPolicy& operator=(const PythonFairnessPolicy&) = delete;
  ~PythonFairnessPolicy() override { release(queues_); }

  void joined(sim::TenantId flow, const gateway::TenantQueues& queues, Time now) override {
    inform(joined_, flow, queues, now);
  }
  void left(sim::TenantId flow, const gateway::TenantQueues& queues, Time now) override {
    inform(left_, flow, queues, now);
  }
  std::optional<sim::TenantId> next(const gateway::TenantQueues& queues, const MayStart& may_start,
                                    Time now) override {
    if (!may_start.any()) return std::nullopt;
    if (std::ranges::none_of(queues.backlogged(),
                             [&](sim::TenantId flow) { return may_start(flow); })) {
      return std::nullopt;
    }
    const InterpreterLock lock;
    const Open open(call_queues_, queues, &may_start, now);
    const py::object result = next_.call(now, queues_);
    if (result.is_none()) return std::nullopt;
    const Py_ssize_t chosen = PyNumber_AsSsize_t(result.ptr(), nullptr);
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    const bool is_index = PyIndex_Check(result.ptr()) != 0 && !py::isinstance<py::bool_>(result);
    if (is_index && chosen >= 0 && static_cast<std::size_t>(chosen) < queues.num_flows()) {
      const sim::TenantId flow{static_cast<std::size_t>(chosen)};
      if (queues.length(flow) > 0 && may_start(flow)) return flow;
    }
    next_.refuse(result, "None, or the position of a tenant that may start", now);
  }
  void dispatched(sim::TenantId flow, const gateway::TenantQueues& queues, Time now) override {
    inform(dispatched_, flow, queues, now);
  }
  void charge(sim::TenantId flow, double amount, Time now) override {
    if (!charge_) return;
    const InterpreterLock lock;
    charge_.call(now, py::int_(flow.index()), py::float_(amount), py::float_(sim::to_seconds(now)));
  }

 private:
  // Lets Python see the queues during a call.
  class Open {
   public:
    Open(CallQueues& seen, const gateway::TenantQueues& queues, const MayStart* may_start, Time now)
        : seen_(seen) {
      seen_.set(&queues, may_start, now);
    }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() { seen_.set(nullptr, nullptr, Time{0}); }

   private:
    CallQueues& seen_;
  };

  void inform(Method& method, sim::TenantId flow, const gateway::TenantQueues& queues, Time now) {
    if (!method) return;
    const InterpreterLock lock;
    const Open open(call_queues_, queues, nullptr, now);
    method.call(now, py::int_(flow.index()), queues_);
  }

  Held held_;
  py::object queues_;
  CallQueues& call_queues_;
  Method next_{held_, "next", true}, joined_{held_, "joined"}, left_{held_, "left"},
      dispatched_{held_, "dispatched"}, charge_{held_, "charge"};
};

// ---- factories ----------------------------------------------------------------------------------

/// An imported class or function without required arguments, which makes a policy.
class Factory final : public gateway::AdmissionFactory,
                      public gateway::ControllerFactory,
                      public gateway::FairnessFactory,
                      public router::RouterFactory,
                      public router::ScorerFactory {
 public:
  Factory(py::object maker, std::string name) : maker_(std::move(maker)), name_(std::move(name)) {}
  Factory(const Factory&) = delete;
  Factory& operator=(const Factory&) = delete;
  ~Factory() override { release(maker_); }

  const py::object& maker() const { return maker_; }

  std::unique_ptr<gateway::AdmissionPolicy> make_admission(
      const gateway::Scope& scope) const override {
    const InterpreterLock lock;
    std::vector<py::str> tenants;
    for (const workload::Tenant& one : scope.tenants) tenants.emplace_back(one.name);
    return std::make_unique<PythonAdmissionPolicy>(maker_, name_, std::move(tenants));
  }
  std::unique_ptr<gateway::ControllerPolicy> make_controller() const override {
    const InterpreterLock lock;
    return std::make_unique<PythonControllerPolicy>(maker_, name_);
  }
  std::unique_ptr<gateway::FairnessPolicy> make_fairness(
      std::span<const double> weights) const override {
    const InterpreterLock lock;
    return std::make_unique<PythonFairnessPolicy>(maker_, name_, weights);
  }
  std::unique_ptr<router::RoutingPolicy> make_router() const override {
    const InterpreterLock lock;
    return std::make_unique<PythonRoutingPolicy>(maker_, name_);
  }
  std::unique_ptr<router::Scorer> make_scorer() const override {
    const InterpreterLock lock;
    return std::make_unique<PythonScorer>(maker_, name_);
  }

 private:
  py::object maker_;
  std::string name_;
};

}  // namespace

std::shared_ptr<const sim::Attachment> factory_in(py::handle object) {
  if (!py::isinstance<Factory>(object)) return nullptr;
  return py::cast<std::shared_ptr<Factory>>(object);
}

void bind_policies(py::module_& module) {
  py::class_<Factory, std::shared_ptr<Factory>>(
      module, "Factory", "An imported class or function that makes the policy of a run.")
      .def(py::init<py::object, std::string>(), py::arg("maker"), py::arg("name"))
      .def_property_readonly("maker", &Factory::maker);
  module.def(
      "maker_of",
      [](const Settings& settings) -> py::object {
        const sim::Value fields = settings.encoded();
        const sim::Value* found = fields.find("factory");
        const auto* shared = found ? found->get_if<sim::Value::Shared>() : nullptr;
        const auto factory = shared ? std::dynamic_pointer_cast<const Factory>(*shared) : nullptr;
        return factory ? factory->maker() : py::none();
      },
      py::arg("settings"), "The class or function of a policy; None: it has not been imported.");
  // In C++ alone can these be made.
  py::class_<CallRequest>(module, "Request", "The request of a call; valid during it only.")
      .def_property_readonly(
          "id", [](const CallRequest& self) { return self.get().row(); },
          "Position in the order of arrival.")
      .def_property_readonly(
          "input_tokens", [](const CallRequest& self) { return self.get().input_tokens(); },
          "Length of the prompt.")
      .def_property_readonly("tenant", &CallRequest::tenant,
                             "Name of the tenant; in routers and scorers its position.")
      .def_property_readonly(
          "priority", [](const CallRequest& self) { return self.get().priority(); },
          "Priority of its SLO class; higher is more important.")
      .def_property_readonly(
          "arrival_s",
          [](const CallRequest& self) { return sim::to_seconds(self.get().arrival()); },
          "When it arrived, in seconds.")
      .def_property_readonly(
          "prefix_group", [](const CallRequest& self) { return self.get().prefix_group(); },
          "Content of the first shared segment of the prompt; None: none.");
  using gateway::Reading;
  py::class_<Reading>(module, "Reading", "What a controller reads at a tick.")
      .def_readonly("value", &Reading::value, "The sensor's aggregate, in the unit of its source.")
      .def_readonly("samples", &Reading::samples, "Number of samples in the value.")
      .def_readonly("in_flight", &Reading::in_flight, "Requests in flight now.")
      .def_readonly("queued", &Reading::queued, "Requests in the queues now.")
      .def_readonly("max_in_flight", &Reading::max_in_flight, "Most in flight since the last tick.")
      .def_readonly("shed", &Reading::shed,
                    "Requests rejected, evicted or expired since the last tick.")
      .def_readonly("kv_utilization", &Reading::kv_utilization, "Mean over the instances, 0 to 1.")
      .def_readonly("hit_rate", &Reading::hit_rate, "Of prefix blocks, mean over the instances.")
      .def_readonly("has_demand", &Reading::has_demand,
                    "Whether there is demand, by the guard's definition.")
      .def_readonly("since_last_tick_s", &Reading::since_last_tick_s, "In seconds.");
  py::class_<CallQueues>(
      module, "Queues",
      "The queues of a band, valid during a call only. Arrays have one value per "
      "tenant and are read-only.")
      .def("__len__", &CallQueues::size)
      .def_property_readonly("now_s", &CallQueues::now_s, "The present instant, in seconds.")
      .def_property_readonly("weights", &CallQueues::weights, "Weights of the tenants.")
      .def_property_readonly("lengths", &CallQueues::lengths, "Numbers of queued requests.")
      .def_property_readonly("head_costs", &CallQueues::head_costs,
                             "What dispatching the head is charged at once; NaN: no head.")
      .def_property_readonly("head_waits_s", &CallQueues::head_waits_s,
                             "How long the head has waited, in seconds; NaN: no head.")
      .def_property_readonly("head_serials", &CallQueues::head_serials,
                             "Order in which the heads have joined, from 1; 0: no head.")
      .def_property_readonly("may_start", &CallQueues::may_start,
                             "Whether there is a head that the limits let start; only in next.");
  py::class_<CallView>(
      module, "View",
      "The candidate instances as the gateway sees them; valid during a call only. "
      "Arrays have one value per candidate and are read-only.")
      .def("__len__", &CallView::size)
      .def_property_readonly("now_s", &CallView::now_s, "The instant of the decision, in seconds.")
      .def_property_readonly("rng", &CallView::rng, py::return_value_policy::reference_internal,
                             "Random numbers of this decision alone.")
      .def_property_readonly("has_workers", &CallView::has_workers,
                             "Whether any instance is ready.")
      .def_property_readonly("instances", &CallView::instances,
                             "Number of each candidate in the fleet.")
      .def_property_readonly("waiting", &CallView::waiting, "Requests in the engine's queue.")
      .def_property_readonly("running", &CallView::running, "Requests in the batch.")
      .def_property_readonly("in_flight", &CallView::in_flight,
                             "Requests routed there and not finished: the gateway's own count.")
      .def_property_readonly("kv_utilization", &CallView::kv_utilization,
                             "Used share of the KV blocks, 0 to 1.")
      .def_property_readonly("free_blocks", &CallView::free_blocks, "Free KV blocks.")
      .def_property_readonly("prefill_tokens", &CallView::prefill_tokens,
                             "Prompt tokens not yet computed.")
      .def_property_readonly("age_s", &CallView::age_s,
                             "Age of the metrics in seconds; NaN: never measured.")
      .def_property_readonly("num_kv_blocks", &CallView::num_kv_blocks, "KV blocks in total.")
      .def_property_readonly("max_num_seqs", &CallView::max_num_seqs, "Largest batch.");
}

}  // namespace spillway::bindings
