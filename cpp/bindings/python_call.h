// What the adapters of policies written in Python share: the interpreter's lock for each call, the
// views that calls get, and the calls themselves. Runs do not hold the lock, so runs on other
// threads go on meanwhile.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "signals/view.h"
#include "sim/error.h"
#include "sim/rng.h"
#include "sim/time.h"
#include "workload/tenants.h"

namespace spillway::bindings {

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

// Drops a reference wherever the last owner ends, which may hold no lock.
inline void release(py::object& object) {
  if (!object) return;
  if (Py_IsInitialized() == 0) {
    object.release();
    return;
  }
  const py::gil_scoped_acquire gil;
  object = py::object();
}

[[noreturn]] inline void refuse_late() {
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
  SignalColumn() = default;
  SignalColumn(SignalColumn&&) noexcept = default;
  SignalColumn& operator=(SignalColumn&&) = delete;
  ~SignalColumn() { release(array_); }
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

/// What makes a policy when called without arguments, and the name of its class or function.
struct Maker {
  py::object make;
  std::string name;
};

inline std::vector<py::str> names_of(std::span<const workload::Tenant> tenants) {
  std::vector<py::str> names;
  for (const workload::Tenant& tenant : tenants) names.emplace_back(tenant.name);
  return names;
}

/// A Python policy of one run, with the objects that its calls get. All functions but the
/// destructor are called with the lock.
class Held {
 public:
  explicit Held(const Maker& maker, std::vector<py::str> tenants = {});
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    for (py::object* object : {&policy_, &request_, &view_}) release(*object);
  }

  /// The method; unset if the policy has none and it is not `needed`.
  py::object method(const char* verb, bool needed) const;
  /// Calls a method. `request` and `view` are those that it gets, null: none; `more` follows them.
  py::object call(const py::object& method, const char* verb, const signals::RequestView* request,
                  const signals::View* view, Time now, sim::Draws* draws,
                  std::span<PyObject* const> more);
  /// Ends the run: the result of a method is not what the contract says. `request`: null: none.
  [[noreturn]] void refuse(const char* verb, const py::object& result, const std::string& allowed,
                           const signals::RequestView* request, Time now) const;

 private:
  static constexpr std::size_t kMostArguments = 5;

  std::string name_;
  py::object policy_, request_, view_;
  CallRequest* call_request_ = nullptr;
  CallView* call_view_ = nullptr;
};

/// A method of a policy. All functions but the destructor and the test for presence are called with
/// the lock. An unset `now` is left out of errors.
class Method {
 public:
  Method(Held& held, const char* verb, bool needed = false)
      : held_(held), verb_(verb), method_(held.method(verb, needed)) {}
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;
  ~Method() { release(method_); }

  /// Whether the policy has it.
  explicit operator bool() const { return static_cast<bool>(method_); }

  /// Calls the method with a request and a view.
  py::object operator()(const signals::RequestView& request, const signals::View& view, Time now,
                        sim::Draws* draws = nullptr) {
    return held_.call(method_, verb_, &request, &view, now, draws, {});
  }
  /// Calls the method with a view.
  py::object operator()(const signals::View& view, Time now) {
    return held_.call(method_, verb_, nullptr, &view, now, nullptr, {});
  }
  /// Calls the method with a request and what follows.
  py::object about(const signals::RequestView& request, Time now, const auto&... more) {
    const std::array<PyObject*, sizeof...(more)> all{more.ptr()...};
    return held_.call(method_, verb_, &request, nullptr, now, nullptr, all);
  }
  /// Calls the method with the arguments.
  py::object call(Time now, const auto&... arguments) {
    const std::array<PyObject*, sizeof...(arguments)> all{arguments.ptr()...};
    return held_.call(method_, verb_, nullptr, nullptr, now, nullptr, all);
  }
  [[noreturn]] void refuse(const py::object& result, const std::string& allowed, Time now,
                           const signals::RequestView* request = nullptr) const {
    held_.refuse(verb_, result, allowed, request, now);
  }

 private:
  Held& held_;
  const char* verb_;
  py::object method_;
};

/// The result as a position >= 0 and < `size`; unset: it is none. A number with an index is one, a
/// bool is none.
inline std::optional<std::size_t> position_in(const py::object& result, std::size_t size) {
  const Py_ssize_t position = PyNumber_AsSsize_t(result.ptr(), nullptr);  // clips
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  const bool is_index = PyIndex_Check(result.ptr()) != 0 && !py::isinstance<py::bool_>(result);
  if (!is_index || position < 0 || static_cast<std::size_t>(position) >= size) return std::nullopt;
  return static_cast<std::size_t>(position);
}

/// The result as True or False, of Python or NumPy; unset: it is neither.
inline std::optional<bool> flag_in(const py::object& result) {
  if (result.ptr() == Py_True) return true;
  if (result.ptr() == Py_False) return false;
  const std::string_view type = Py_TYPE(result.ptr())->tp_name;
  if (type != "numpy.bool" && type != "numpy.bool_") return std::nullopt;
  return PyObject_IsTrue(result.ptr()) == 1;
}

/// The result as a finite number >= 0; unset: it is none.
inline std::optional<double> amount_in(const py::object& result) {
  const double number = PyFloat_AsDouble(result.ptr());
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  const bool is_number = PyFloat_Check(result.ptr()) != 0 || PyIndex_Check(result.ptr()) != 0;
  if (!is_number || !std::isfinite(number) || number < 0) return std::nullopt;
  return number;
}

/// Copies an array of numbers, none of them NaN, to `values`; false: the result is none of this
/// size.
inline bool read_numbers(const py::object& result, std::span<double> values) {
  const auto array = py::array_t<double, py::array::c_style | py::array::forcecast>::ensure(result);
  if (!array) {
    PyErr_Clear();
    return false;
  }
  if (array.ndim() != 1 || static_cast<std::size_t>(array.size()) != values.size()) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(array.data()[i])) return false;
    values[i] = array.data()[i];
  }
  return true;
}

}  // namespace spillway::bindings
